# SPDX-License-Identifier: Apache-2.0
"""What is predicted of altered traces, against what the alteration changed, counted by hand."""

import json
from dataclasses import replace

import numpy as np
import pytest

import characterize
from characterize.characterization import characterize as characterization_of
from characterize.durations_of import DurationsOf, durations_of
from characterize.errors import FlextraceError
from characterize.layout import HeaderFlag, IoFlag, IoOp, RecordKind
from characterize.workload import Workload
from flextrace.main import main
from replayer.alter import Relative, alter
from replayer.merge import clone, merge
from replayer.repeat import repeat
from replayer.willy import make_trace
from selfscale.measuring.access import Access
from selfscale.measuring.storage import storage_times
from selfscale.predict import Predictor
from selfscale.predicting.application import application_of
from selfscale.predicting.estimates import SIMULATION, estimates
from selfscale.predicting.treatment import treatment
from selfscale.simulation.machine_costs import machine_costs
from selfscale.simulation.operations import operations_of
from tests.formulas.formula_predictor import FormulaPredictor
from tests.formulas.probed_profile import probed_profile
from tests.formulas.synthetic_machine import MIB
from tests.traces.made_trace import made_trace, read, write

pytestmark = pytest.mark.parallel

US, MS = 1_000, 1_000_000
PAGE = 4096
READS, THINK_NS, READ_NS, BEFORE_NS, AFTER_NS = 101, 13 * US, 40 * US, 3 * MS, 7 * MS
PAGES, CACHED_FROM = 1009, 500
SYNCED = "was measured with an fdatasync behind 0.1 of the writes, whose time is in that of its requests"
UNCACHED = "was measured without the page cache"
KNEE = {"converged": True, "rounds": 1, "moving": [], "ranges": {}}


@pytest.fixture(scope="module")
def predictor():
    return Predictor(probed_profile())


def cached_reads():
    """Random reads of pages of the second half of a file, which is cached, with a pause before each but the first."""
    pages = CACHED_FROM + np.random.default_rng(5).permutation(PAGES - CACHED_FROM)[:READS]
    starts = 1 + BEFORE_NS + np.arange(READS) * (READ_NS + THINK_NS)
    rows = [
        read(PAGE * int(page), PAGE, int(start), READ_NS, missed_bytes=0, id=number + 1)
        for number, (page, start) in enumerate(zip(pages, starts, strict=True))
    ]
    cached = PAGE * (PAGES - CACHED_FROM)
    return made_trace(
        rows,
        files=[{"file": 1, "size_bytes": PAGE * PAGES, "resident_bytes": cached}],
        resident=[{"file": 1, "offset": PAGE * CACHED_FROM, "bytes": cached}],
        tasks=[{"thread": 1, "process": 1, "comm": b"p"}],
        paths={1: "/a"},
        start_monotonic_ns=1,
        start_realtime_ns=1 + MS,
        end_monotonic_ns=int(starts[-1]) + READ_NS + AFTER_NS,
        end_realtime_ns=int(starts[-1]) + READ_NS + AFTER_NS + MS,
    )


def simulated(trace, predictor, tmp_path):
    application = application_of(characterize.write(trace, tmp_path / "t.iotrace", force=True), {})
    (found,) = [each for each in estimates(predictor, application) if each.basis == SIMULATION]
    return found


def test_a_factor_of_one_changes_no_prediction(predictor, tmp_path):
    parent = simulated(cached_reads(), predictor, tmp_path)
    for change in ("sizeMean", "thinkScale"):
        same = simulated(alter(cached_reads(), {change: Relative(1)})[0], predictor, tmp_path)
        assert same == parent


@pytest.mark.parametrize(("change", "factor"), [("thinkScale", 0.01), ("thinkScale", 2.0), ("timeScale", 3.0)])
def test_elapsed_time_moves_by_the_think_time(predictor, tmp_path, change, factor):
    """Also if all times are scaled: what a request takes is the machine's, before and behind nothing thinks."""
    parent = simulated(cached_reads(), predictor, tmp_path)
    altered, _ = alter(cached_reads(), {change: Relative(factor)})
    found = simulated(altered, predictor, tmp_path)
    changed_s = (factor - 1) * THINK_NS * (READS - 1) / 1e9
    assert found.elapsed_s.value - parent.elapsed_s.value == pytest.approx(changed_s, rel=0.001)
    assert found.in_io.value == pytest.approx(parent.in_io.value)
    assert found.simulated.read_wait_s == 0, "cached is what was cached"
    assert found.elapsed_s.low < found.elapsed_s.value < found.elapsed_s.high
    # The schedule ends as long after its last operation as the recording did.
    last_ns = int((altered.io["start_ns"] + altered.io["duration_ns"]).max())
    assert altered.header.end_monotonic_ns - last_ns == AFTER_NS
    assert altered.header.end_realtime_ns - last_ns == AFTER_NS + MS


def test_larger_requests_take_of_a_processor_more_by_what_the_benchmark_does(predictor, tmp_path):
    parent = cached_reads()
    # All of it, so that which part is cached does not matter.
    parent.arrays[RecordKind.FILE]["resident_bytes"] = PAGE * PAGES
    altered, _ = alter(parent, {"sizeMean": Relative(4), "uniqueBytes": Relative(4)})
    assert durations_of(altered).size_factor == pytest.approx(4)
    found = simulated(altered, predictor, tmp_path)
    byte_ns = machine_costs(predictor.service_times, storage_times(predictor.profile.storage), {}).requests.read_byte_ns
    assert 3 * PAGE * byte_ns > 0.01 * READ_NS
    assert found.in_io.value == pytest.approx(4 * PAGE / (READ_NS + 3 * PAGE * byte_ns) * 1e9, rel=0.001)
    twice, _ = alter(altered, {"sizeMean": Relative(0.5), "uniqueBytes": Relative(0.5)})
    assert durations_of(twice).size_factor == pytest.approx(2)
    back, _ = alter(twice, {"sizeMean": Relative(0.5), "uniqueBytes": Relative(0.5)})
    assert simulated(back, predictor, tmp_path).in_io.value == pytest.approx(PAGE / READ_NS * 1e9, rel=0.001)


def test_larger_cold_requests_wait_less_for_each_byte(predictor, tmp_path):
    """One wait of storage for each, whatever its size, and the scan's time for each page behind its first."""
    parent = cached_reads()
    parent.arrays[RecordKind.IO]["missed_bytes"] = PAGE
    parent.arrays[RecordKind.FILE]["resident_bytes"] = 0
    parent.arrays[RecordKind.RESIDENT] = parent.arrays[RecordKind.RESIDENT][:0]
    altered, _ = alter(parent, {"sizeMean": Relative(4), "uniqueBytes": Relative(4)})
    before, after = (simulated(trace, predictor, tmp_path) for trace in (parent, altered))
    assert before.simulated.read_wait_s > READS * 30e-6
    assert after.simulated.read_wait_s < 2 * before.simulated.read_wait_s
    assert 2 < after.in_io.value / before.in_io.value < 4


def mixed():
    """Reads that wait 300 us for storage, a few that hit, writes of 5 us; all of one page, on another one each."""
    rows = [read(PAGE * at, PAGE, at * MS, 300 * US, missed_bytes=PAGE, id=1 + at) for at in range(40)]
    rows += [read(PAGE * at, PAGE, at * MS, 7 * US, missed_bytes=0, id=1 + at) for at in range(40, 53)]
    rows += [write(PAGE * at, PAGE, at * MS, 5 * US, id=1 + at) for at in range(53, 100)]
    return made_trace(rows, files=[{"file": 1, "size_bytes": 100 * PAGE, "resident_bytes": 0}], paths={1: "/a"})


@pytest.mark.parametrize("read_frac", [0.1, 0.9])
def test_requests_of_the_other_direction_take_what_others_of_theirs_do(read_frac):
    altered, _ = alter(mixed(), {"readFrac": read_frac})
    found = operations_of(altered)
    reads = altered.arrays[RecordKind.IO]["op"] == IoOp.READ
    assert reads.sum() == round(100 * read_frac)
    assert found.processor_ns[~reads].tolist() == [5 * US] * int((~reads).sum())
    assert found.processor_ns[reads].tolist() == [7 * US] * int(reads.sum())
    again, _ = alter(altered, {"readFrac": 0.53})
    assert (operations_of(again).processor_ns < 8 * US).all()


def test_copies_and_passes_are_simulated_too(predictor, tmp_path):
    once = simulated(cached_reads(), predictor, tmp_path)
    thrice = simulated(repeat(cached_reads(), 3), predictor, tmp_path)
    passes_ns = 3 * (READS * READ_NS + (READS - 1) * THINK_NS)
    assert thrice.elapsed_s.value == pytest.approx((passes_ns + BEFORE_NS + AFTER_NS) / 1e9, rel=0.001)
    both = simulated(clone(cached_reads(), 2), predictor, tmp_path)
    assert both.elapsed_s.value == pytest.approx(once.elapsed_s.value, rel=0.001)
    assert both.in_io.value == pytest.approx(2 * once.in_io.value, rel=0.001)


def test_parts_whose_durations_are_of_other_sizes_are_not_simulated(predictor, tmp_path):
    large, _ = alter(cached_reads(), {"sizeMean": Relative(4), "uniqueBytes": Relative(4)})
    assert simulated(clone(large, 2), predictor, tmp_path).in_io.value > 0
    joined = merge([large, cached_reads()])
    with pytest.raises(FlextraceError, match="different factors"):
        operations_of(joined)
    with pytest.raises(FlextraceError, match="different factors"):
        operations_of(alter(joined, {"thinkScale": Relative(2)})[0])
    application = application_of(characterize.write(joined, tmp_path / "j.iotrace"), {})
    assert application.operations is None
    assert any("different factors" in each and "five parameters alone" in each for each in application.warnings)


def test_what_a_recording_says_of_durations_is_its_own():
    trace = cached_reads()
    trace.header.metadata["durations_of"] = {"size_factor": 4.0, "time_factor": 1.0}
    assert durations_of(trace) == DurationsOf()
    trace.header.flags |= HeaderFlag.PLANNED
    assert durations_of(trace) == DurationsOf(4.0, 1.0)
    for damaged in (
        {"size_factor": 0, "time_factor": 1},
        {"size_factor": 10**400, "time_factor": 1},
        {"size_factor": "x"},
        7,
    ):
        trace.header.metadata["durations_of"] = damaged
        with pytest.raises(FlextraceError, match="damaged"):
            durations_of(trace)


def test_misses_of_the_parent_are_nobodys_number():
    altered, _ = alter(mixed(), {"thinkScale": Relative(2)})
    extended = characterization_of(altered).layers["vfs"].extended
    assert np.isnan(extended["missFrac"])
    assert np.isnan(extended["cacheHitFrac"])


def test_what_is_not_known_is_said(tmp_path, capsys, predictor):
    trace = mixed()
    trace.arrays[RecordKind.FILE]["resident_bytes"] = 2**64 - 1
    trace.arrays[RecordKind.IO]["flags"][3] = IoFlag.DIRECT
    altered, _ = alter(trace, {"thinkScale": Relative(2)})
    path = characterize.write(altered, tmp_path / "a.iotrace")
    application = application_of(path, {})
    _, ignored = treatment(application, FormulaPredictor(lambda workload: 1e6))
    assert {name: value for name, value, _ in ignored} == {
        "coldFrac": pytest.approx(np.nan, nan_ok=True),
        "directFrac": 0.01,
    }
    predictor.profile.save(tmp_path / "here.json")
    assert main(["predict", str(tmp_path / "here.json"), "--trace", str(path)]) == 0
    out = capsys.readouterr().out
    assert "ignored by all but the simulation: coldFrac unknown (reads of data" in out
    assert "files of which it is not known what was cached at first, taken as nothing: 1" in out
    rows = [write(PAGE * at, PAGE, at * MS, 5 * US) for at in range(9)]
    parent = made_trace(rows, files=[{"file": 1, "size_bytes": 9 * PAGE}], paths={1: "/a"})
    writes, _ = alter(parent, {"thinkScale": Relative(2)})
    application = application_of(characterize.write(writes, tmp_path / "w.iotrace"), {})
    _, ignored = treatment(application, FormulaPredictor(lambda workload: 1e6))
    assert "coldFrac" not in [name for name, *_ in ignored], "nothing is read"


def test_the_verbs(tmp_path, capsys, predictor):
    parent, large, here = tmp_path / "p.iotrace", tmp_path / "l.iotrace", tmp_path / "here.json"
    characterize.write(cached_reads(), parent)
    predictor.profile.save(here)
    assert main(["alter", str(parent), "-o", str(large), "--size-mean", "4x", "--unique-bytes", "4x"]) == 0
    capsys.readouterr()
    assert main(["predict", str(here), "--trace", str(large), "--against", str(here), "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    *others, last = document["predictions"]
    assert last["model"] == "simulation"
    assert last["application"]["elapsed_s"]["value"] > 0
    assert last["application"]["in_flight"] is None
    assert [other["application"]["elapsed_s"] for other in others] == [None] * len(others)
    assert document["recorded"] is None
    assert document["ratios"][-1]["ratio"] == pytest.approx(1)
    assert not any("every number made from times is null" in each for each in document["warnings"])
    assert main(["predict", str(here), "--trace", str(large)]) == 0
    out = capsys.readouterr().out
    assert "requests are 4 times their parent's" in out
    assert "only how much was cached at first is known" in out
    assert "no recorded times: the trace has not run" in out
    for words in (["predict", str(here), "--trace", str(large)], ["rank", str(large), str(here)]):
        assert main([*words, "--measured-on", str(here)]) == 2
        assert "leave out --measured-on" in capsys.readouterr().err
    assert main(["rank", str(large), str(here), "--by", "elapsed", "--format", "json"]) == 0
    (table,) = json.loads(capsys.readouterr().out)["workloads"]
    assert table["basis"] == SIMULATION
    replace(predictor.profile, storage=[]).save(tmp_path / "without.json")
    assert main(["rank", str(large), str(tmp_path / "without.json"), "--by", "elapsed"]) == 2
    assert "not all of the machines can be simulated" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, ("does not say what storage takes", "'flextrace scale --budget 100s' or more")),
        ({"settings": {"access": Access(sync_frac=0.1).as_document()}}, (SYNCED, "without --sync-frac")),
        ({"settings": {"access": Access(dsync=True).as_document()}}, ("was measured with O_DSYNC", "without --dsync")),
        ({"settings": {"access": Access("direct").as_document()}}, (UNCACHED, "measure one without --direct")),
        ({"settings": {"access": Access("device", "/dev/x").as_document()}}, (UNCACHED, "scale --directory DIR'")),
        ({"knee": KNEE}, ("was measured around a knee", "'flextrace scale --focal middle'")),
        ({"regions": 1}, ("tells no region beyond the cache", "measure one on a disk, with a larger --budget")),
    ],
)
def test_a_profile_from_which_nothing_is_simulated_says_why_and_what_to_do(tmp_path, capsys, predictor, changes, told):
    reason, remedy = told
    altered, _ = alter(cached_reads(), {"thinkScale": Relative(2)})
    trace, path = str(characterize.write(altered, tmp_path / "a.iotrace")), tmp_path / "p.json"
    document = predictor.profile.as_document() | {"storage": []} | changes
    if "regions" in changes:
        document["regions"] = predictor.profile.as_document()["regions"][: changes["regions"]]
    path.write_text(json.dumps(document))
    for words in (["predict", str(path), "--trace", trace], ["rank", trace, str(path)]):
        assert main([*words, "--model", "product"]) == 0
        captured = capsys.readouterr()
        out = " ".join(captured.out.split())
        assert "no elapsed time: the trace has not run, and" in out
        assert f"{path}{', which' if words[0] == 'predict' else ''} {reason}" in out
        assert SIMULATION not in out
        (warning,) = [line for line in captured.err.splitlines() if "are not simulated" in line]
        assert f"profile {path} {reason}" in warning
        assert remedy in warning
    assert main(["rank", trace, str(path), "--model", "product", "--by", "elapsed"]) == 2
    assert reason in capsys.readouterr().err


def test_a_trace_without_a_schedule_says_on_what_the_number_rests(tmp_path, capsys, predictor):
    made = characterize.write(make_trace(Workload(20 * MIB, 0.25, 0.75, 8192.0, 2.0), requests=12_000), tmp_path / "w")
    predictor.profile.save(tmp_path / "here.json")
    assert main(["predict", str(tmp_path / "here.json"), "--trace", str(made)]) == 0
    captured = capsys.readouterr()
    assert SIMULATION not in captured.out
    assert "not simulated: it is synthetic" in captured.err
    assert "rests on the five parameters alone" in captured.err
