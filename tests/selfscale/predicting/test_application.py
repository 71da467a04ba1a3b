# SPDX-License-Identifier: Apache-2.0
"""What is predicted of an application, against hand calculation on machines that are formulas."""

import math

import pytest

import characterize
from characterize.errors import FlextraceError
from characterize.layout import Fileop
from characterize.workload import Workload
from flextrace.output.prediction_text import application_lines, recorded_lines
from replayer.willy import make_trace
from selfscale.predicting.application import application_of
from selfscale.predicting.estimates import estimates, not_recorded, relative_of
from selfscale.predicting.treatment import treatment
from tests.formulas.formula_predictor import FormulaPredictor
from tests.formulas.synthetic_machine import MIB
from tests.traces.made_trace import made_trace, read, write
from tests.traces.two_threads import MS, two_threads

pytestmark = pytest.mark.parallel


@pytest.fixture
def recorded(tmp_path):
    return characterize.write(two_threads(), tmp_path / "t.iotrace")


def test_what_a_machine_does_with_an_application(recorded):
    application = application_of(recorded, {})
    times = application.times
    # In flight from 0 to 15, 20 to 35, ... : 4 x 15 ms; 8 x 10 ms of requests. Both threads wait 40 of their 70 ms,
    # and one of them lives for 75 ms.
    assert times.io_s == pytest.approx(0.060)
    assert times.in_flight == pytest.approx(8 / 6)
    assert times.waiting_s == pytest.approx(0.075 * 40 / 70)
    assert application.read_share == 0.5
    assert application.extended["coldFrac"] == 0.5
    assert application.device_share == 0.25

    def throughput(workload: Workload) -> float:
        """1 MB/s for each process while the cache holds it, a tenth beyond."""
        return 1e6 * workload.process_num * (0.1 if workload.unique_bytes > 64 * MIB else 1)

    (estimate,) = estimates(FormulaPredictor(throughput), application)[:1]
    assert estimate.prediction.throughput_bytes_per_s == 2e6
    expected = 1 / (0.75 / (1e6 * 8 / 6) + 0.25 / (1e5 * 8 / 6))
    assert estimate.in_io.value == pytest.approx(expected)
    assert (estimate.in_io.low, estimate.in_io.high) == (pytest.approx(expected / 2), pytest.approx(expected * 2))
    assert estimate.saturation == pytest.approx(1.5)
    outside_s = 0.1 - 0.075 * 4 / 7
    assert estimate.elapsed_s.value == pytest.approx(outside_s + 0.075 * 4 / 7 * 8 * 4096 / 0.060 / expected)
    assert estimate.elapsed_s.low < estimate.elapsed_s.value < estimate.elapsed_s.high


def test_a_profile_of_the_cache_alone_knows_no_cold_reads(recorded):
    application = application_of(recorded, {})
    predictor = FormulaPredictor(lambda workload: 1e6, regions=1)
    assert estimates(predictor, application)[0].in_io.value == pytest.approx(1e6)
    used, ignored = treatment(application, predictor)
    assert [name for name, *_ in used] == []
    assert [name for name, *_ in ignored] == ["coldFrac"]
    used, ignored = treatment(application, FormulaPredictor(lambda workload: 1e6))
    assert [name for name, *_ in used] == ["coldFrac"]
    assert ignored == []


def test_the_relative_prediction_cancels_what_a_model_gets_wrong_on_both(recorded):
    application = application_of(recorded, {})
    measured = application.times.throughput_bytes_per_s
    biased = 1.3
    (there,) = estimates(FormulaPredictor(lambda workload: biased * measured, regions=1), application)[:1]
    (here,) = estimates(FormulaPredictor(lambda workload: biased * measured * 4, regions=1), application)[:1]
    found = relative_of(here, there)
    assert found.off == pytest.approx(0.3)
    assert found.in_io.value == pytest.approx(4 * measured)
    assert found.in_io.high == pytest.approx(4 * measured * 2 ** math.sqrt(2))
    times = application.times
    assert found.elapsed_s.value == pytest.approx(times.outside_s + times.waiting_s / 4)
    assert relative_of(there, there).elapsed_s.value == pytest.approx(times.elapsed_s)


def test_syncs_count_once_where_the_profile_has_them(tmp_path):
    """Ten times a write of 1 ms, its sync of 5 ms and 4 ms of computing."""
    rows = [write(0, 4096, 10 * MS * number, MS) for number in range(10)]
    syncs = [
        {"op": Fileop.FDATASYNC, "start_ns": (10 * number + 1) * MS, "duration_ns": 5 * MS} for number in range(10)
    ]
    files = [{"file": 1, "size_bytes": 4096, "resident_bytes": 4096}]
    recording = made_trace(rows, fileops=syncs, files=files, start_monotonic_ns=1, end_monotonic_ns=100 * MS + 1)
    application = application_of(characterize.write(recording, tmp_path / "t.iotrace"), {})
    assert application.extended["syncFrac"] == 1
    moved_bytes = 10 * 4096
    for sync_frac, in_io_s in ((0.0, 0.010), (1.0, 0.060)):
        as_recorded, twice = (
            FormulaPredictor(lambda workload, factor=factor, s=in_io_s: factor * moved_bytes / s) for factor in (1, 2)
        )
        for predictor in (as_recorded, twice):
            predictor.profile.settings = {"access": {"sync_frac": sync_frac}}
        (there,) = estimates(as_recorded, application)[:1]
        assert there.elapsed_s.value == pytest.approx(0.1, rel=0.01)
        (here,) = estimates(twice, application)[:1]
        # Threads live from their first request to the end of the last one: 91 ms, or with syncs 96 ms.
        waiting_s = 0.010 if not sync_frac else 0.060
        assert here.elapsed_s.value == pytest.approx(0.1 - waiting_s / 2, rel=0.02)
        found = relative_of(here, there)
        assert found.off == pytest.approx(0, abs=0.01)
        assert found.elapsed_s.value == pytest.approx(here.elapsed_s.value)
        text = " ".join(application_lines(application, here))
        assert ("I/O and syncs with 1 in flight" in text) == (sync_frac == 1)
        text = " ".join(" ".join(recorded_lines(application, here)).split())
        split = "40 ms not in I/O and syncs (taken as it is) + 60 ms waiting for I/O and syncs"
        assert (split if sync_frac else "90 ms not in I/O (taken as it is; 50 ms with a sync in flight) + 10") in text
        used, ignored = treatment(application, as_recorded)
        assert "syncFrac" not in [name for name, *_ in ignored]
        assert ("syncFrac" in [name for name, *_ in used]) == (sync_frac == 0)


def test_a_trace_that_has_not_run_has_no_elapsed_time(tmp_path):
    made = make_trace(Workload(20 * MIB, 0.25, 0.75, 8192.0, 2.0), requests=12_000, sync_frac=0.1)
    application = application_of(characterize.write(made, tmp_path / "t.iotrace"), {})
    predictor = FormulaPredictor(lambda workload: 1e6)
    (estimate, _) = estimates(predictor, application)
    assert application.times is None
    assert estimate.elapsed_s is None
    assert [name for name, *_ in treatment(application, predictor)[1]] == ["syncFrac"]
    with pytest.raises(FlextraceError, match="no recorded throughput to start from; leave out"):
        relative_of(estimate, estimate)


def test_a_given_number_of_processes_replaces_the_recorded_one(recorded):
    application = application_of(recorded, {"process_num": 8.0})
    (estimate,) = estimates(FormulaPredictor(lambda workload: 1e6 * workload.process_num), application)[:1]
    assert estimate.in_flight == 8.0
    assert "processNum as given" in estimate.basis


@pytest.mark.parametrize(
    ("metadata", "duration_ns", "why"),
    [
        ({"durations": "unknown"}, MS, "the trace has no durations"),
        ({}, 0, "all of the trace happened at one moment"),
    ],
)
def test_a_trace_without_times_says_why_it_has_none(tmp_path, metadata, duration_ns, why):
    rows = [read(4096 * at, 4096, MS + duration_ns * at, duration_ns) for at in range(9)]
    recording = made_trace(rows, files=[{"file": 1, "size_bytes": 9 * 4096}], metadata=metadata)
    application = application_of(characterize.write(recording, tmp_path / "t.iotrace"), {})
    assert application.times is None
    assert recorded_lines(application) == [f"no elapsed time: {why}"]
    said = str(not_recorded(application.why_no_times))
    assert f"no recorded throughput to start from, since {why}; leave out" in said
