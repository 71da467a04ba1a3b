# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of ``make bench-predict``, on machines that are formulas."""

from __future__ import annotations

import json

import numpy as np
import pytest

from selfscale.exploring.plan import Step
from selfscale.measure import Point
from selfscale.measuring.storage import ROLE, probes
from selfscale.profiles.conclusions import file_cache_bytes
from selfscale.validate import Validation, compare_models
from tests.bench.bench_predict import SCHEMA, opened, parse_arguments, print_tables
from tests.bench.findings import Bar
from tests.bench.lab_measurements import (
    POINTS_FEW,
    TABLE_5_2,
    Effort,
    explore,
    grown_profile,
    measure_stages,
    profile_of,
    settings_of,
)
from tests.bench.predict_figures import (
    Results,
    application_lines,
    cache_sizes,
    cold_reads,
    coverage,
    excess_over_product,
    inside_regions,
    places_of_errors,
    ratios,
)
from tests.bench.repeatability_cost import repeatability_cost
from tests.formulas.synthetic_storage import MIB, RAM, SSD, StorageMachine

pytestmark = pytest.mark.parallel

EFFORT = Effort(budget_s=45.0, points=42, workloads=16, seconds=3.0, seed=5)
STAGES = ["profile", "random 0", "more", "random 1", "prediction_ms"]


def record_of(machine: StorageMachine, effort: Effort) -> dict:
    record = {"machine": {"memory_bytes": int(machine.cache_bytes)}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.bench.lab_measurements.copy_bytes_per_s", lambda: 1e10)
        measure_stages(record, settings_of(int(machine.cache_bytes), effort), machine.measure, effort, lambda: None)
    return json.loads(json.dumps(record, allow_nan=False))


ONE_BORDER = SSD | {"dirty_bytes": 128 * MIB}
"""Writes wait where reads begin to miss: tables of few points are made of it."""


@pytest.fixture(scope="module")
def noisy():
    return record_of(StorageMachine(**ONE_BORDER, noise=0.05, seed=3), EFFORT)


@pytest.fixture(scope="module")
def exact():
    return {
        "ssd": record_of(StorageMachine(**ONE_BORDER, noise=0.0), EFFORT),
        "memory": record_of(StorageMachine(**RAM, noise=0.0), EFFORT),
    }


def test_stages_measure_what_they_say(noisy):
    assert set(STAGES) <= set(noisy)
    assert len(noisy["profile"]["points"]) <= POINTS_FEW
    assert len(noisy["profile"]["points"]) + len(noisy["more"]) == EFFORT.points
    for stage, measured in (("profile", noisy["profile"]["points"]), ("more", noisy["more"])):
        beside = [copy["role"] for copy in noisy["host_copies"][stage] if copy["role"] != "storage"]
        assert beside == [point["role"] for point in measured]
    for repeat in (0, 1):
        roles = [point["role"] for point in noisy[f"random {repeat}"]]
        assert roles == ["random"] * EFFORT.workloads + ["table"] * len(TABLE_5_2)
        assert {point["repeat"] for point in noisy[f"random {repeat}"]} == {repeat}
    first, second = ([json.dumps(point["workload"]) for point in noisy[f"random {repeat}"]] for repeat in (0, 1))
    assert first != second
    assert sorted(first) == sorted(second)
    learned = {json.dumps(point["workload"]) for point in noisy["profile"]["points"] + noisy["more"]}
    assert not learned & set(first[: EFFORT.workloads])


def test_exploration_ends_at_its_number_of_points(monkeypatch):
    monkeypatch.setattr("tests.bench.lab_measurements.POINTS_FEW", 31)
    machine = StorageMachine(**ONE_BORDER)
    profile = explore(settings_of(int(machine.cache_bytes), EFFORT), machine.measure)
    assert len(profile.measured) == len(machine.measured) == 31


def test_interrupted_measurement_goes_on_behind_the_last_whole_stage():
    machine = StorageMachine(**ONE_BORDER)
    settings, record, kept = settings_of(int(machine.cache_bytes), EFFORT), {}, []
    first = iter(range(64))

    def failing(step):
        if next(first, None) is None:
            raise KeyboardInterrupt
        return machine.measure(step)

    with pytest.raises(KeyboardInterrupt):
        measure_stages(record, settings, failing, EFFORT, lambda: kept.append(sorted(record)))
    assert "profile" in record
    assert "random 1" not in record
    before = json.dumps(record["profile"])
    machine.measured.clear()
    measure_stages(record, settings, machine.measure, EFFORT, lambda: kept.append(sorted(record)))
    assert json.dumps(record["profile"]) == before
    assert not any(step.role in ("curve", "reference") for step in machine.measured)
    assert len(kept) == len(STAGES)


def test_errors_are_those_of_validate(noisy):
    results = Results("ssd", noisy)
    profile = grown_profile(noisy, POINTS_FEW)
    points = [
        Point.from_document(point)
        for repeat in (0, 1)
        for point in noisy[f"random {repeat}"]
        if point["role"] == "random"
    ]
    validation = Validation([point.workload for point in points if point.repeat == 0], {}, [])
    rows = {row.name: row for row in compare_models(profile, validation, points)["rows"]}
    assert float(np.median(results.repeatability)) == pytest.approx(rows["repeatability"].errors["median"])
    for name in ("product", "utilization", "learned"):
        judged = results.judged(POINTS_FEW)[name]
        for quantile, share in (("median", 0.5), ("p90", 0.9)):
            assert float(np.quantile(judged.errors, share)) == pytest.approx(rows[name].errors[quantile])
        assert judged.inside.mean() == pytest.approx(rows[name].coverage)
    used = next(name for name, row in rows.items() if row.used)
    assert results.judged(POINTS_FEW)["best"].name == f"best ({used})"
    (worst,) = excess_over_product([results], POINTS_FEW)
    everywhere = rows[used].errors["median"] - rows["product"].errors["median"]
    assert worst.measured.value >= 100 * everywhere - 1e-9
    (covered,) = coverage([results], POINTS_FEW)
    assert covered.measured.value == pytest.approx(100 * rows[used].coverage)


def test_repeatability_stands_with_the_time_that_it_cost(noisy):
    table = repeatability_cost([Results("ssd", noisy)]).set_index("where")
    both = [point for stage in ("random 0", "random 1") for point in noisy[stage] if point["role"] == "random"]
    cost_s = sum(point["cost_s"] for point in both)
    assert cost_s > EFFORT.workloads
    assert table.loc["all", "both took"] == f"{cost_s:.0f} s"
    assert table.loc["all", "a workload"] == f"{cost_s / EFFORT.workloads:.1f} s"
    assert table.loc["all", "workloads"] == EFFORT.workloads == table["workloads"].iloc[1:].sum()
    first, second = (
        {json.dumps(point["workload"]): point["throughput_bytes_per_s"] for point in both if point["repeat"] == repeat}
        for repeat in (0, 1)
    )
    errors = [abs(second[workload] / value - 1) for workload, value in first.items()]
    assert table.loc["all", "median"] == f"{100 * np.median(errors):.1f} %"
    old = json.loads(json.dumps(noisy))
    for point in old["random 0"] + old["random 1"]:
        del point["cost_s"]
    older = repeatability_cost([Results("ssd", old)]).set_index("where")
    assert older["median"].tolist() == table["median"].tolist()
    assert set(older["both took"]) == set(older["a workload"]) == {"-"}


def test_repeatability_of_a_machine_without_noise_is_nothing_and_regions_keep_the_bar(exact):
    for name, record in exact.items():
        results = Results(name, record)
        assert results.repeatability.max() == pytest.approx(0, abs=1e-9)
        assert {line.bar for line in inside_regions([results], POINTS_FEW)} == {Bar(5)}


def test_bar_inside_a_region_is_the_repeatability_where_that_is_larger(noisy):
    record = json.loads(json.dumps(noisy))
    for point in record["random 1"]:
        point["throughput_bytes_per_s"] *= 1.5
    lines = inside_regions([Results("ssd", record)], POINTS_FEW)
    assert lines
    assert all(30 < line.bar.high < 70 for line in lines)


def test_errors_by_place_are_of_all_workloads_twice(noisy):
    results = Results("ssd", noisy)
    table = places_of_errors([results], POINTS_FEW)
    steady = table["random workloads"].str.contains("steady")
    assert table.loc[steady, "n"].sum() == table.loc[~steady, "n"].sum() == len(results.workloads)
    errors = results.judged(POINTS_FEW)["best"].errors
    border = file_cache_bytes(profile_of(noisy["profile"]))
    below = [workload.unique_bytes < 0.8 * border for workload in results.workloads]
    row = table[table["random workloads"].str.startswith("below")].iloc[0]
    assert (row["n"], row["median"]) == (sum(below), f"{100 * np.median(errors[below]):.0f} %")


def test_measured_ratios_are_the_ratios_of_the_formulas(exact):
    results = [Results(name, record) for name, record in exact.items()]
    lines, table = ratios(results, POINTS_FEW)
    one, other = StorageMachine(**ONE_BORDER), StorageMachine(**RAM)
    assert list(table["workload"]) == list(TABLE_5_2)
    for row in table.to_dict("records"):
        workload = TABLE_5_2[row["workload"]]
        assert row["measured"] == pytest.approx(one.throughput(workload) / other.throughput(workload))
        assert row["error %"] == pytest.approx(100 * abs(row["predicted"] / row["measured"] - 1))
    assert lines[0].measured.value == pytest.approx(table["error %"].median())


def test_cache_size_is_judged_against_the_limit(exact):
    results = Results("ssd", exact["ssd"])
    limit, found = 128 * MIB, file_cache_bytes(profile_of(exact["ssd"]["profile"]))
    (line,) = cache_sizes([results])
    assert line.measured.value == pytest.approx(100 * abs(found - limit) / limit)
    # Without points of reads alone the border says it.
    results.profile.measured, results.profile.boundaries_bytes = [], [0.94 * limit]
    assert cache_sizes([results])[0].met == "NO"
    results.profile.boundaries_bytes = [0.96 * limit]
    assert cache_sizes([results])[0].met == "yes"
    results.profile.boundaries_bytes = []
    assert cache_sizes([results])[0].met == "NO"


def test_probes_of_cold_reads_stand_beside_what_is_predicted_of_them(noisy):
    record = json.loads(json.dumps(noisy))
    machine = StorageMachine(**ONE_BORDER)
    steps = [Step(workload, ROLE, 1.0, parameter=name) for name, workload in probes(512.0 * MIB).items()]
    record["profile"]["storage"] = [step.label(machine.measure(step)).as_document() for step in steps]
    table = cold_reads([Results("ssd", record)], POINTS_FEW).set_index("probe")
    assert set(table.index) == {"parallel", "scan"}
    for name, workload in probes(512.0 * MIB).items():
        if name in table.index:
            assert table.loc[name, "measured MB/s"] == pytest.approx(machine.throughput(workload) / 1e6, rel=0.2)
    assert table["predicted / measured"].between(0.3, 3).all()
    for probe in record["profile"]["storage"]:
        probe["device_reads"] = 0.3
    warm = cold_reads([Results("ssd", record)], POINTS_FEW).set_index("probe")["predicted / measured"]
    assert warm["parallel"] > 1.5 * table.loc["parallel", "predicted / measured"], "two thirds of the requests hit"
    assert warm["scan"] == table.loc["scan", "predicted / measured"]
    assert not len(cold_reads([Results("ssd", {**record, "profile": noisy["profile"]})], POINTS_FEW))


def test_applications_are_judged_by_way():
    def prediction(way, predicted):
        elapsed_s = predicted / 50 if way == "absolute" else None
        elapsed = {"predicted_elapsed_s": elapsed_s, "measured_elapsed_s": 2.0}
        interval = [0.8 * predicted, 1.2 * predicted] if way == "absolute" else None  # older files have none
        return {
            "way": way,
            "predicted_bytes_per_s": predicted,
            "measured_bytes_per_s": 100.0,
            **({"interval_bytes_per_s": interval} if interval else {}),
            "interval_elapsed_s": elapsed_s and [0.9 * elapsed_s, 1.1 * elapsed_s],
            **elapsed,
        }

    predictions = [prediction("absolute", value) for value in (90, 110, 150)] + [prediction("relative", 139)]
    lines = {(line.what): line for line in application_lines(predictions)}
    assert lines["absolute, median"].measured.value == pytest.approx(10)
    assert lines["absolute, worst"].measured.value == pytest.approx(50)
    assert [lines[what].met for what in ("absolute, median", "absolute, worst")] == ["yes", "NO"]
    assert [lines[what].met for what in ("relative, median", "relative, worst")] == ["NO", "yes"]
    elapsed = [lines[f"absolute, elapsed time, {what}"] for what in ("median", "worst")]
    assert [line.measured.value for line in elapsed] == pytest.approx([10, 50])
    assert [line.met for line in elapsed] == ["-", "-"]
    within = [lines[f"absolute{what}, within 90 % intervals"].measured.value for what in ("", ", elapsed time")]
    assert within == pytest.approx([200 / 3, 100 / 3])
    assert not any(what.startswith(("relative, elapsed", "relative, within")) for what in lines)


def test_saved_numbers_print_again_without_measuring(exact, tmp_path, capsys):
    document = {
        "schema": SCHEMA,
        "host": {"kernel": "k", "cpus": 2, "load": [0, 0, 0]},
        "effort": {"seed": 1},
        "machines": {"ssd": {name: value for name, value in exact["ssd"].items() if name != "more"}},
        "predictions": [],
        "errors": {"slow": "UnavailableError: no throttle"},
    }
    print_tables(document)
    text = capsys.readouterr().out
    for title in ("File-cache size", "Best model", "Inside one region", "90 % intervals", "Time of one"):
        assert title in text
    assert "not measured: slow: UnavailableError: no throttle" in text
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(document))
    print_tables(json.loads(path.read_text()))
    assert capsys.readouterr().out == text


def test_output_of_other_settings_is_not_continued(tmp_path):
    path = tmp_path / "bench.json"
    document = opened(parse_arguments(["--output", str(path), "--budget", "1m"]))
    path.write_text(json.dumps(document))
    assert opened(parse_arguments(["--output", str(path), "--budget", "60s"]))["created"] == document["created"]
    with pytest.raises(SystemExit, match="other settings"):
        opened(parse_arguments(["--output", str(path), "--budget", "2m"]))
