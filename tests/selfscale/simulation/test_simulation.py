# SPDX-License-Identifier: Apache-2.0
"""What is predicted of simulated operations, with times written by hand."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import characterize
from characterize.characterization import characterize as characterization_of
from flextrace.main import main
from selfscale.comparing.comparison_predictions import prediction_rows
from selfscale.comparing.comparison_runs import Setting
from selfscale.measuring.storage import storage_times
from selfscale.models.service_time import CONSTANTS
from selfscale.predict import Predictor
from selfscale.predicting import ranking
from selfscale.predicting.application import application_of
from selfscale.predicting.estimates import REST_ERROR, SIMULATION, SYNC_ERROR, estimates, relative_of
from selfscale.simulation import run
from selfscale.simulation.machine_costs import machine_costs
from selfscale.simulation.operations import Kind, operations_of
from selfscale.simulation.simulate import simulate, simulate_uncertain
from tests.formulas.probed_profile import probed_profile
from tests.formulas.synthetic_machine import MIB
from tests.traces.two_threads import reader_and_writer

pytestmark = pytest.mark.parallel

US, MS = 1_000, 1_000_000
PAGE = 4096


@pytest.fixture(scope="module")
def profile():
    return probed_profile()


@pytest.fixture
def recorded(tmp_path):
    return characterize.write(reader_and_writer(), tmp_path / "t.iotrace")


def test_a_machine_as_the_formula_and_the_probes_say(profile):
    predictor, environment = Predictor(profile), {"read_ahead_bytes": 1 << 20, "cpus": 2}
    costs = machine_costs(predictor.service_times, storage_times(profile.storage), environment)
    assert costs.cache_pages * PAGE == pytest.approx(256 * MIB, rel=0.2)
    assert costs.read_ahead == (256, 320, True)
    # The formula has where writing back begins, of a profile without the kernel's limit. The two limits are 10 and 20 %
    # of the memory by default, and writers wait from the middle on (mm/page-writeback.c, dirty_freerun_ceiling).
    constants = dict(zip(CONSTANTS, np.exp(predictor.service_times.constants), strict=True))
    assert costs.background_pages * PAGE == constants["write_cache"] * predictor.service_times.border_bytes
    assert costs.dirty_pages == pytest.approx((10 + 20) / 2 / 10 * costs.background_pages)
    told, beyond = (
        machine_costs(predictor.service_times, costs.storage, environment | {"dirty_limit_bytes": limit_bytes})
        for limit_bytes in (40 * MIB, 512 * MIB)
    )
    assert (told.background_pages * PAGE, told.dirty_pages * PAGE) == (20 * MIB, 30 * MIB)
    assert beyond.background_pages == costs.background_pages, "a cache of 256 MiB is full before"
    assert costs.processors == 2
    assert costs.serving_threads == 0
    assert costs.storage.read_ns == 40 * US
    slower = profile.storage[0]
    slower = replace(slower, response_time={"read": {**slower.response_time["read"], "p50_ns": 80 * US}})
    storage = storage_times([slower, *profile.storage[1:]])
    operations = operations_of(reader_and_writer())
    one, other = (simulate(operations, costs._replace(storage=times)) for times in (costs.storage, storage))
    # One read was not cached.
    assert other.read_wait_s - one.read_wait_s == pytest.approx(40e-6)
    assert other.span_s - one.span_s == pytest.approx(40e-6)
    assert other.read_mean_ns - one.read_mean_ns == pytest.approx(40 * US / (operations.kind == Kind.READ).sum())
    assert other.write_mean_ns == pytest.approx(one.write_mean_ns)
    assert other.sync_s == pytest.approx(other.sync_wait_s, rel=0.1), "one sync at a time"


def test_a_cache_is_as_large_as_its_limit_where_the_border_is_that_of_dirty_pages(profile):
    """Of half reads and half writes on *zram*, 192 MiB, the border was found at 33 and 41 MiB: there writers wait."""
    service_times = replace(Predictor(profile).service_times, border_bytes=33.0 * MIB)
    limits = {"cache_limit_bytes": 192 * MIB, "dirty_limit_bytes": 40 * MIB}
    costs = machine_costs(service_times, storage_times(profile.storage), limits)
    assert costs.cache_pages * PAGE == 192 * MIB
    assert (costs.background_pages * PAGE, costs.dirty_pages * PAGE) == (20 * MIB, 30 * MIB)


def test_operations_are_put_in_order_once_for_all_that_is_drawn(profile, monkeypatch):
    """Which takes several sorts of millions of operations."""
    in_order = []

    def schedule(operations):
        in_order.append(run.schedule_of(operations))
        return in_order[-1]

    monkeypatch.setattr("selfscale.simulation.simulate.schedule_of", schedule)
    predictor, operations = Predictor(profile), operations_of(reader_and_writer())
    times, storage = predictor.service_times, storage_times(profile.storage)
    found = simulate_uncertain(operations, times, storage, {"cpus": 2})
    assert len(in_order) == 1
    alone = simulate(operations, machine_costs(times, storage, {"cpus": 2}))
    assert replace(found, sigma=0.0, span_sigma=0.0) == alone


def test_it_is_one_more_estimate(profile, recorded):
    application = application_of(recorded, {})
    *_, estimate = estimates(Predictor(profile), application)
    assert estimate.basis == SIMULATION
    assert estimate.simulated.read_wait_s == pytest.approx(40e-6)
    # Four new blocks: the sync of one, the first of all operations for storage, and its journal.
    costs = machine_costs(Predictor(profile).service_times, storage_times(profile.storage), {})
    storage = costs.storage
    assert storage.sync_held_up_ns > costs.write_busy_ns + 4 * costs.write_page_busy_ns
    sync_ns = storage.paused_sync_ns + storage.append_sync_ns - storage.sync_ns
    assert estimate.simulated.sync_wait_s == pytest.approx(sync_ns / 1e9, rel=0.05)
    low, value, high = (getattr(estimate.in_io, name) for name in ("low", "value", "high"))
    assert 0 < low <= value <= high
    assert estimate.elapsed_s.value == pytest.approx(0.03 - 0.025009 + estimate.simulated.span_s, rel=0.01)
    # Its interval has what is unsure of syncs, and of the time in neither, too.
    elapsed, io_s = estimate.elapsed_s, application.times.moved_bytes / estimate.in_io.value
    sync_s = estimate.simulated.sync_s
    least = 1.645 * np.hypot(SYNC_ERROR * sync_s, REST_ERROR * (elapsed.value - io_s - sync_s))
    assert least < elapsed.high - elapsed.value < 2 * least
    assert least < elapsed.value - elapsed.low < 2 * least
    # Without probes, or with another parameter, there is none.
    assert SIMULATION not in {each.basis for each in estimates(Predictor(replace(profile, storage=[])), application)}
    changed = application_of(recorded, {"read_frac": 1.0})
    assert SIMULATION not in {each.basis for each in estimates(Predictor(profile), changed)}


def test_where_the_machine_of_the_recording_is_known_its_processor_times_are_compared(profile, recorded):
    application = application_of(recorded, {})
    predictor = Predictor(profile)
    points = {point.parameter: point for point in profile.storage}
    # Where new data takes 2 us a request less than here.
    quicker = points["append"].response_time["write"] | {"p50_ns": 1.0 * US}
    longer = points["append long"].response_time["write"] | {"p50_ns": 32.0 * US}
    points["append"] = replace(points["append"], response_time={"write": quicker})
    points["append long"] = replace(points["append long"], response_time={"write": longer})
    there = Predictor(replace(profile, storage=list(points.values())))
    *_, alone = estimates(predictor, application)
    *_, moved = estimates(predictor, application, there)
    # Two of eleven writes make pages: three at once, and one.
    assert 11 * (moved.simulated.write_mean_ns - alone.simulated.write_mean_ns) == pytest.approx(2 * 2 * US, rel=0.01)
    assert any("where they were recorded" in note for note in moved.prediction.notes)
    *_, same = estimates(predictor, application, predictor)
    assert same.simulated == alone.simulated
    unknown = estimates(predictor, application, Predictor(replace(profile, storage=[])))[-1]
    assert unknown.simulated == alone.simulated
    assert unknown.prediction.notes == alone.prediction.notes


def test_relative_it_takes_half_of_what_the_simulation_was_off_by_where_it_ran(profile, recorded):
    application = application_of(recorded, {})
    times = application.times
    *_, there = estimates(Predictor(profile), application)
    here = replace(there, in_io=there.in_io.times(3), elapsed_s=there.elapsed_s.times(0.5))
    found = relative_of(here, there)
    assert found.off == pytest.approx(there.in_io.value / times.throughput_bytes_per_s - 1)
    off = there.in_io.value / times.throughput_bytes_per_s, there.elapsed_s.value / times.elapsed_s
    assert max(off) > 1.05 or min(off) < 0.95
    assert found.in_io.value == pytest.approx(here.in_io.value / math.sqrt(off[0]))
    assert found.elapsed_s.value == pytest.approx(here.elapsed_s.value / math.sqrt(off[1]))
    # The interval has what is not known of both machines, of the one of the recording by half.
    one, both = math.log(here.in_io.high / here.in_io.value), math.log(found.in_io.high / found.in_io.value)
    assert both == pytest.approx((1 + math.sqrt(2)) / 2 * one)


def test_compare_has_it_as_a_row(profile, recorded, tmp_path):
    trace = characterize.open(recorded)
    found = characterization_of(trace)
    layer = found.as_document()["layers"]["vfs"]
    setting = Setting(
        trace, layer, found.layers["vfs"].parameters, profile, tmp_path, 256 * MIB, 1, 0, "think", max_seconds=1.0
    )
    row = prediction_rows(setting)[-1]
    assert row.name == "prediction_simulated"
    *_, estimate = estimates(Predictor(profile), application_of(recorded, {}))
    (sample,) = row.samples
    moved = layer["counts"]["read_bytes"] + layer["counts"]["written_bytes"]
    assert sample["throughput_in_io_bytes_per_s"] == pytest.approx(estimate.in_io.value)
    assert row.details["interval_bytes_per_s"] == pytest.approx([estimate.in_io.low, estimate.in_io.high])
    assert sample["throughput_bytes_per_s"] == pytest.approx(moved / estimate.elapsed_s.value)
    assert sample["read_mean_ns"] == pytest.approx(estimate.simulated.read_mean_ns)
    requests = layer["counts"]["reads"] + layer["counts"]["writes"]
    assert sample["sync_per_request_ns"] * requests / 1e9 == pytest.approx(estimate.simulated.sync_wait_s, rel=0.1)
    without = prediction_rows(replace(setting, profile=replace(profile, storage=[])))
    assert "prediction_simulated" not in {row.name for row in without}
    assert any("what storage takes" in note for note in without[0].notes)


def test_predict_and_rank_say_it(profile, recorded, tmp_path, capsys):
    with_probes, without = tmp_path / "with.json", tmp_path / "without.json"
    profile.save(with_probes)
    replace(profile, storage=[]).save(without)
    assert main(["predict", str(with_probes), "--trace", str(recorded), "--against", str(without)]) == 0
    text = capsys.readouterr().out
    assert f"{SIMULATION}:" in text
    assert "waiting for storage, all threads added: read" in text
    assert "ignored by all but the simulation: appendFrac" in text
    assert "used by all but the simulation: syncFrac" in text
    workloads, simulated = text.split(f"{SIMULATION}:")
    assert "by that interval" in workloads
    elapsed = next(line for line in simulated.splitlines() if line.startswith("  elapsed"))
    assert "90 % interval" in elapsed
    assert "by that interval" not in elapsed
    arguments = ["predict", str(with_probes), "--trace", str(recorded), "--format", "json"]
    assert main([*arguments, "--measured-on", str(without)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["predictions"][-1]["model"] == "simulation"
    assert document["predictions"][-1]["application"]["simulated"]["read_wait_s"] > 0
    assert document["predictions"][0]["application"]["simulated"] is None
    assert document["relative"][-1] is None, "that machine has none"
    assert main(["predict", str(without), "--trace", str(recorded)]) == 0
    captured = capsys.readouterr()
    assert SIMULATION not in captured.out
    assert "does not say what storage takes" in captured.err
    assert main(["rank", str(recorded), str(with_probes), str(without)]) == 0
    assert SIMULATION not in capsys.readouterr().out, "machines are compared by what all of them have"
    assert main(["rank", str(recorded), str(with_probes), str(with_probes)]) == 0
    assert SIMULATION in capsys.readouterr().out


def test_rank_takes_a_simulation_as_it_is_and_all_else_relative_to_the_run(profile, recorded, tmp_path, capsys):
    here, without = tmp_path / "here.json", tmp_path / "without.json"
    profile.save(here)
    replace(profile, storage=[]).save(without)
    *_, estimate = estimates(Predictor(profile), application_of(recorded, {}))
    for measured_on in (here, without):
        words = ["rank", str(recorded), str(here), "--measured-on", str(measured_on), "--format", "json"]
        assert main(words) == 0
        *others, simulated = json.loads(capsys.readouterr().out)["workloads"]
        assert simulated["basis"] == SIMULATION
        (entry,) = simulated["order"]
        assert entry["relative"] is None
        assert entry["throughput"]["value"] == pytest.approx(estimate.in_io.value)
        assert others
        assert all(each["relative"] is not None for other in others for each in other["order"])


def test_rank_does_not_simulate_the_machine_of_the_recording(profile, recorded, monkeypatch):
    simulated = []

    def simulation(predictor, *_):
        simulated.append(predictor)

    monkeypatch.setattr("selfscale.predicting.estimates.simulation_of", simulation)
    here, there = Predictor(profile), Predictor(profile)
    machine = ranking.Machine("here", Path("here.json"), math.nan, here)
    assert ranking.rank([machine], application_of(recorded, {}), measured_on=there)
    assert simulated == [here]


def test_the_ratio_to_the_same_machine_is_one_wherever_it_was_recorded(profile, recorded, tmp_path, capsys):
    here, there = tmp_path / "here.json", tmp_path / "there.json"
    profile.save(here)
    document = profile.as_document()
    for point in document["points"]:
        point["throughput_bytes_per_s"] /= 2
    there.write_text(json.dumps(document))
    words = ["predict", str(here), "--trace", str(recorded), "--against", str(here), "--measured-on", str(there)]
    assert main([*words, "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["predictions"][-1]["model"] == "simulation"
    assert [ratio["ratio"] for ratio in document["ratios"]] == pytest.approx([1.0] * len(document["predictions"]))


def test_numbers_are_the_same_again(profile, recorded):
    application = application_of(recorded, {})
    first, second = (estimates(Predictor(profile), application)[-1] for _ in range(2))
    assert first.in_io == second.in_io
    assert np.isfinite([first.in_io.low, first.elapsed_s.high]).all()
