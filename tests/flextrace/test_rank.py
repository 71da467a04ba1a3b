# SPDX-License-Identifier: Apache-2.0
"""The verb rank, and predict relative to a machine, on machines that are tables of a known law."""

import json
import random

import pytest

import characterize
from characterize.errors import FlextraceError
from characterize.workload import Workload
from flextrace.main import main
from replayer.willy import make_trace
from selfscale.predicting.cross_validation import best_of
from selfscale.predicting.ranking import WORKLOADS
from tests.traces.two_threads import two_threads

pytestmark = pytest.mark.parallel

WAITING_S = 0.075 * 40 / 70
OUTSIDE_S = 0.1 - WAITING_S
RECORDED = 8 * 4096 / 0.060


def law(size: float, processes: float) -> float:
    return 5e5 * (size / 4096) ** 0.5 * processes


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Machines by how many times as fast as the law they are, some with a cost; a trace that was recorded on one."""
    place = tmp_path_factory.mktemp("rank")
    generator = random.Random(2)
    rows = [(generator.choice([4096, 8192, 65536, 131072]), generator.choice([1, 2, 4, 8])) for _ in range(40)]
    for name, factor, cost in (("slow", 1.0, ["--cost", "100"]), ("fast", 4.0, ["--cost", "1000"]), ("same", 1.0, [])):
        lines = [f"{size},{processes},{factor * law(size, processes)}" for size, processes in rows]
        table = place / f"{name}.csv"
        table.write_text("\n".join(["size_mean,process_num,throughput_bytes_per_s", *lines]) + "\n")
        assert main(["fit", str(table), "-o", str(place / f"{name}.json"), *cost]) == 0
    characterize.write(two_threads(), place / "t.iotrace")
    return place


def ranking(place, capsys, *options):
    capsys.readouterr()
    assert main(["rank", *options, "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "flextrace.ranking/1"
    return document


def test_machines_by_throughput(place, capsys):
    paths = [str(place / name) for name in ("t.iotrace", "slow.json", "fast.json")]
    document = ranking(place, capsys, *paths)
    first, second = document["workloads"][0]["order"]
    assert [first["machine"], second["machine"]] == ["fast", "slow"]
    # 8 requests of 10 ms in 60 ms: 8 / 6 in flight.
    assert second["throughput"]["value"] == pytest.approx(law(4096, 8 / 6), rel=0.01)
    assert second["ratio"]["ratio"] == pytest.approx(0.25, rel=0.01)
    for entry, factor in ((first, 4), (second, 1)):
        elapsed_s = OUTSIDE_S + WAITING_S * RECORDED / (factor * law(4096, 8 / 6))
        assert entry["elapsed_s"]["value"] == pytest.approx(elapsed_s, rel=0.01)
    assert document["machines"][0]["cost"] == 100


def test_other_orders(place, capsys):
    paths = [str(place / name) for name in ("t.iotrace", "same.json", "fast.json", "slow.json")]
    by_cost = ranking(place, capsys, *paths, "--by", "cost")["workloads"][0]["order"]
    # A quarter of the throughput for a tenth of the cost; the one without cost is last.
    assert [entry["machine"] for entry in by_cost] == ["slow", "fast", "same"]
    assert by_cost[0]["per_cost"] == pytest.approx(law(4096, 8 / 6) / 100, rel=0.01)
    assert [entry["ratio"]["ratio"] for entry in by_cost] == [pytest.approx(1), pytest.approx(0.4, rel=0.01), None]
    by_time = ranking(place, capsys, *paths, "--by", "elapsed")["workloads"][0]["order"]
    assert by_time[0]["machine"] == "fast"
    first, *others = by_time
    for other in others:
        assert other["ratio"]["ratio"] == pytest.approx(first["elapsed_s"]["value"] / other["elapsed_s"]["value"])
    assert main(["rank", *paths, "--by", "cost"]) == 0
    out = capsys.readouterr().out
    assert "~" not in out, "as fast, and without a cost; or a tenth of it"
    assert " 0.4 " in out


def test_parameters_beyond_the_five_are_those_of_all_profiles_that_have_them(tmp_path, capsys):
    rows = [f"{size},{depth},{1e4 * depth * size**0.5}" for size in (4096, 8192, 65536) for depth in (1, 2, 4, 8)]
    text = "\n".join(["size_mean,queueDepth,throughput_bytes_per_s", *rows])
    for name in ("one", "two"):
        (tmp_path / f"{name}.csv").write_text(f"{text}\n")
        assert main(["fit", str(tmp_path / f"{name}.csv"), "-o", str(tmp_path / f"{name}.json")]) == 0
    one, two = str(tmp_path / "one.json"), str(tmp_path / "two.json")
    capsys.readouterr()
    words = ["predict", one, "--size-mean", "8192", "--set", "queueDepth=8", "--against", two, "--format", "json"]
    assert main(words) == 0
    (ratio,) = json.loads(capsys.readouterr().out)["ratios"]
    assert ratio["ratio"] == pytest.approx(1)
    found = {}
    for depth in (1, 8):
        assert (
            main(["rank", "--workloads", "table5.2", one, two, "--set", f"queueDepth={depth}", "--format", "json"]) == 0
        )
        found[depth] = json.loads(capsys.readouterr().out)["workloads"][0]["order"][0]["throughput"]["value"]
    assert found[8] == pytest.approx(8 * found[1], rel=0.05)
    assert main(["rank", "--workloads", "table5.2", one, "--set", "colour=3"]) == 2
    assert "no profile has such a parameter" in capsys.readouterr().err


def test_the_text_says_what_cannot_be_told_apart(place, capsys):
    assert main(["rank", *(str(place / name) for name in ("t.iotrace", "slow.json", "same.json", "fast.json"))]) == 0
    assert "~" not in capsys.readouterr().out
    assert main(["rank", *(str(place / name) for name in ("t.iotrace", "slow.json", "same.json"))]) == 0
    out = capsys.readouterr().out
    assert " 1 ~" in out
    assert "not told apart" in out
    assert "recorded: 0.5461 MB/s in I/O, elapsed 100 ms" in out
    assert all(len(line) <= 100 for line in out.splitlines())


def test_relative_to_where_it_ran(place, capsys):
    paths = [str(place / name) for name in ("t.iotrace", "fast.json")]
    document = ranking(place, capsys, *paths, "--measured-on", str(place / "slow.json"))
    (entry,) = document["workloads"][0]["order"]
    assert entry["throughput"]["value"] == pytest.approx(4 * RECORDED, rel=0.01)
    assert entry["elapsed_s"]["value"] == pytest.approx(OUTSIDE_S + WAITING_S / 4, rel=0.01)
    assert entry["relative"]["off"] == pytest.approx(law(4096, 8 / 6) / RECORDED - 1, abs=0.02)


def test_predict_prints_absolute_and_relative(place, capsys):
    options = ["predict", str(place / "fast.json"), "--trace", str(place / "t.iotrace")]
    options += ["--measured-on", str(place / "slow.json")]
    assert main(options) == 0
    out = capsys.readouterr().out
    absolute_s = OUTSIDE_S + WAITING_S * RECORDED / (4 * law(4096, 8 / 6))
    assert f"elapsed {absolute_s * 1e3:.3g} ms, by that interval" in out
    assert f"elapsed, relative: {(OUTSIDE_S + WAITING_S / 4) * 1e3:.3g} ms" in out
    assert "relative to its run on slow.json" in out
    assert "42.9 ms waiting for I/O" in out
    assert "ignored: coldFrac 0.5" in out
    assert main([*options, "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["recorded"]["io_s"] == pytest.approx(0.060)
    assert document["predictions"][0]["application"]["in_flight"] == pytest.approx(8 / 6)
    assert document["relative"][0]["in_io"]["value"] == pytest.approx(4 * RECORDED, rel=0.01)
    assert document["measured_on"]["sha256"]
    assert main([*options, "--size-mean", "8K"]) == 2
    assert "as it was recorded" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options",
    [
        "predict fast.json --trace t.iotrace --against",
        "predict fast.json --trace t.iotrace --measured-on",
        "rank t.iotrace fast.json --measured-on",
    ],
)
def test_a_damaged_profile_is_told_before_the_trace_is_read(place, tmp_path, capsys, monkeypatch, options):
    monkeypatch.setattr("selfscale.predicting.application.application_of", lambda *arguments: pytest.fail("it is read"))
    (tmp_path / "damaged.json").write_text('{"schema": "flextrace.profile/1", "points": 5}')
    words = [str(place / word) if (place / word).is_file() else word for word in options.split()]
    assert main([*words, str(tmp_path / "damaged.json")]) == 1
    assert f"profile {tmp_path / 'damaged.json'} is damaged" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("verb", "options"),
    [
        ("predict fast.json --trace t.iotrace", "--against"),
        ("predict fast.json --trace t.iotrace", "--measured-on"),
        ("predict OTHER --trace t.iotrace", "--against"),
        ("rank t.iotrace fast.json", "--measured-on"),
        ("rank t.iotrace OTHER fast.json", "--measured-on"),
    ],
)
def test_what_the_other_profile_cannot_say_is_told_once(place, tmp_path, capsys, verb, options):
    document = json.loads((place / "slow.json").read_text())
    document["complete"] = False
    other = tmp_path / "slow.json"
    other.write_text(json.dumps(document))
    words = [str(other) if word == "OTHER" else word for word in verb.split()]
    words = [str(place / word) if (place / word).is_file() else word for word in words]
    assert main([*words, options, str(other)]) == 0
    assert capsys.readouterr().err.count(f"profile {other} is not complete") == 1
    assert main([*words, options, str(other), "--format", "json"]) == 0
    warnings = json.loads(capsys.readouterr().out)["warnings"]
    assert sum("is not complete" in warning for warning in warnings) == 1


def test_another_memory_limit_than_the_machine_is_told(place, tmp_path, capsys):
    document = json.loads((place / "slow.json").read_text())
    document["environment"] = {"memory_limit_bytes": 128 << 20}
    (tmp_path / "confined.json").write_text(json.dumps(document))
    options = ["predict", str(place / "fast.json"), "--trace", str(place / "t.iotrace")]
    assert main([*options, "--measured-on", str(tmp_path / "confined.json")]) == 0
    assert "was recorded with no limit of memory" in capsys.readouterr().err


def test_the_workloads_of_the_thesis(place, capsys):
    # Read off table 5.2: uniqueBytes in MB, sizeMean in KB.
    assert WORKLOADS["table5.2"] == {
        "workstation": Workload(1 << 20, 0.8, 0.8, 4096, 1),
        "large_utility": Workload(10 << 20, 0.9, 0.6, 8192, 1),
        "scientific_write": Workload(250 << 20, 0.5, 0.2, 102400, 1),
        "scientific_read": Workload(250 << 20, 0.5, 0.8, 102400, 1),
        "database": Workload(500 << 20, 0.1, 0.2, 4096, 2),
    }
    paths = [str(place / name) for name in ("slow.json", "fast.json")]
    document = ranking(place, capsys, "--workloads", "table5.2", *paths)
    assert [row["basis"] for row in document["workloads"]] == list(WORKLOADS["table5.2"])
    for row in document["workloads"]:
        ratios = {entry["machine"]: entry["ratio"]["ratio"] for entry in row["order"]}
        assert ratios == {"slow": pytest.approx(1.0), "fast": pytest.approx(4.0, rel=0.01)}
    assert main(["rank", "--workloads", "table5.2", *paths]) == 0
    out = capsys.readouterr().out
    expected = law(4096, 2) / 1e6
    assert f"{expected:.4g} (1x)" in out
    assert out.count("(4x)") == 5
    # Four times the throughput for ten times the cost; the third one has none.
    assert main(["rank", "--workloads", "table5.2", *paths, str(place / "same.json"), "--by", "cost"]) == 0
    out = capsys.readouterr().out
    assert "times the throughput per cost of slow" in out
    assert out.count("(0.4x)") == out.count("(-)") == 5


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["t.iotrace"], "at least one profile"),
        (["--workloads", "table5.2", "slow.json", "--by", "elapsed"], "need a recording"),
        (["t.iotrace", "same.json", "--by", "cost"], "no profile carries a cost"),
        (["willy.iotrace", "slow.json", "--by", "elapsed"], "no elapsed time to rank by, since the trace is synthetic"),
    ],
)
def test_what_cannot_be_ranked(place, capsys, words, said):
    if not (place / "willy.iotrace").exists():
        made = make_trace(Workload(1 << 20, 0.25, 0.75, 8192.0, 2.0), requests=3_000)
        characterize.write(made, place / "willy.iotrace")
    assert main(["rank", *(str(place / word) if "." in word and "table" not in word else word for word in words)]) == 2
    assert said in capsys.readouterr().err


def test_a_cost_that_is_no_cost(place, tmp_path, capsys):
    document = json.loads((place / "slow.json").read_text())
    for cost in ("cheap", 10**400):
        document["settings"]["cost"] = cost
        (tmp_path / "p.json").write_text(json.dumps(document))
        assert main(["rank", str(place / "t.iotrace"), str(tmp_path / "p.json")]) == 1
        assert f"cost {cost!r}" in capsys.readouterr().err
    assert main(["fit", str(place / "slow.csv"), "-o", str(tmp_path / "q.json"), "--cost", "-1"]) == 2


@pytest.mark.parametrize(
    "command",
    [
        "predict slow.json --trace none.iotrace --against none.json",
        "predict slow.json --trace none.iotrace --measured-on none.json",
        "rank none.iotrace slow.json none.json",
        "rank none.iotrace slow.json --measured-on none.json",
    ],
)
def test_a_profile_that_is_missing_is_told_before_a_trace_is_read(place, capsys, monkeypatch, command):
    """Which takes minutes, if it is a long one. Here it is missing, too."""
    monkeypatch.chdir(place)
    assert main(command.split()) == 1
    assert "cannot read profile none.json" in capsys.readouterr().err


def test_no_machine_is_fitted_before_the_trace_is_read(place, capsys, monkeypatch):
    monkeypatch.setattr("selfscale.predicting.ranking.machines_of", lambda *of: pytest.fail("one is"))
    assert main(["rank", str(place / "none.iotrace"), str(place / "slow.json")]) == 1
    assert "cannot read trace" in capsys.readouterr().err


@pytest.mark.parametrize("named", ["slow.json", "fast.json"])
@pytest.mark.parametrize(
    "command",
    [
        "rank t.iotrace slow.json fast.json",
        "rank t.iotrace slow.json --measured-on fast.json",
        "predict slow.json --trace t.iotrace --against fast.json",
        "predict slow.json --trace t.iotrace --measured-on fast.json",
    ],
)
def test_a_profile_that_no_model_fits_is_named_among_the_others(place, capsys, monkeypatch, command, named):
    fitting = iter([] if named == "slow.json" else ["slow.json"])

    def first_one_only(scores):
        if next(fitting, None) is None:
            raise FlextraceError("no model fits")
        return best_of(scores)

    monkeypatch.setattr("selfscale.predict.best_of", first_one_only)
    monkeypatch.chdir(place)
    assert main(command.split()) == 1
    assert f"profile {named}: no model fits" in capsys.readouterr().err
