# SPDX-License-Identifier: Apache-2.0
"""The verb predict: a workload from options, from a trace, and what it says of both."""

import json
import math

import pytest

import characterize
from characterize.characterization import characterize as characterization_of
from characterize.workload import Workload
from flextrace.main import main
from replayer.willy import make_trace
from selfscale.explore import Exploration
from selfscale.exploring.plan import Settings
from selfscale.measuring.access import Access
from selfscale.models import MODELS
from selfscale.predict import Predictor, record_scores
from tests.formulas.synthetic_machine import MIB, Machine
from tests.traces.made_trace import made_trace, read

pytestmark = pytest.mark.parallel

OPTIONS = [
    "--unique-bytes",
    "64M",
    "--seq-frac",
    "0.5",
    "--read-frac",
    "50%",
    "--size-mean",
    "32K",
    "--process-num",
    "1",
]


@pytest.fixture(scope="module")
def profile(tmp_path_factory):
    exploration = Exploration(Settings(256 * MIB, 300.0, 2), Machine([(256 * MIB, 500e-6)]).measure)
    exploration.run()
    profile = exploration.profile()
    record_scores(profile)
    profile.save(tmp_path_factory.mktemp("profile") / "p.json")
    return profile


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    return characterize.write(
        make_trace(Workload(20 * MIB, 0.25, 0.75, 8192.0, 2.0), requests=12_000, sync_frac=0.1),
        tmp_path_factory.mktemp("trace") / "t.iotrace",
    )


@pytest.mark.parametrize(
    ("access", "direct_frac", "warned"),
    [
        (Access(), 0.9, "90% of the trace's requests are O_DIRECT, the profile was measured buffered"),
        (Access("direct"), 0.1, "90% of the trace's requests are buffered, the profile was measured O_DIRECT"),
        (Access(), 0.0, None),
        (Access("device", "/dev/x"), 1.0, None),
        (Access("direct", depth=8, engine="io_uring"), 1.0, "8 requests in flight in each process"),
    ],
)
def test_a_trace_that_goes_about_storage_otherwise_is_warned_of(access, direct_frac, warned):
    warnings = access.contradictions({"directFrac": direct_frac})
    assert [warned in text for text in warnings] == ([True] if warned else [])
    assert Access.of({"access": access.as_document()}) == access
    assert Access.of({}).contradictions({}) == []


@pytest.mark.parametrize(
    ("access", "syncs", "stable", "warned"),
    [
        (Access(), 0.0, 0.0, []),
        (Access(sync_frac=0.1), 0.1, 0.0, []),
        (Access(sync_frac=1.0), 1.0, 0.0, []),
        (Access(sync_frac=0.1), math.nan, math.nan, []),
        (Access(dsync=True), 0.0, 1.0, []),
        (Access(), 0.1, 0.0, ["the trace has 0.1 syncs per write, the profile was measured with no sync: mea"]),
        (Access(sync_frac=0.1), 0.0, 0.0, ["with an fdatasync behind 0.1 of the writes: measure one with 'flextrace"]),
        (Access(sync_frac=0.1), 0.3, 0.0, ["measure one with 'flextrace scale --sync-frac 0.3'"]),
        (Access(sync_frac=1.0), 2.5, 0.0, ["2.5 syncs per write, the profile was measured with an fdatasync behind"]),
        (Access(), 0.0, 1.0, ["measured with no sync: measure one with 'flextrace scale --dsync'"]),
        (Access(dsync=True), 0.0, 0.0, ["0% of the trace's writes have O_SYNC or O_DSYNC"]),
    ],
)
def test_a_trace_that_syncs_otherwise_is_warned_of(access, syncs, stable, warned):
    extended = {"directFrac": 0.0, "syncFrac": syncs, "syncWriteFrac": stable}
    warnings = access.contradictions(extended)
    assert [text in warning for text, warning in zip(warned, warnings, strict=True)] == [True] * len(warned)
    # A simulation of the operations has their syncs.
    assert access.contradictions(extended, simulated=True) == []
    assert Access.of({"access": access.as_document()}) == access
    older = {name: value for name, value in access.as_document().items() if name not in {"sync_frac", "dsync"}}
    assert not Access.of({"access": older}).stable


def test_a_trace_with_syncs_on_profiles_with_and_without(profile, trace, tmp_path, capsys):
    """The trace has a sync behind every tenth write."""
    for sync_frac, warned in ((0.0, True), (0.1, False), (1.0, True)):
        document = profile.as_document() | {"settings": {"access": Access(sync_frac=sync_frac).as_document()}}
        (tmp_path / "p.json").write_text(json.dumps(document))
        for verb in (
            ["predict", str(tmp_path / "p.json"), "--trace", str(trace), "--model", "product"],
            ["rank", str(trace), str(tmp_path / "p.json"), "--model", "product"],
        ):
            assert main(verb) == 0
            captured = capsys.readouterr()
            assert ("the trace has 0.1 syncs per write" in captured.err) == warned
            assert ("ignored: syncFrac" in captured.out) == (sync_frac == 0 and verb[0] == "predict")
            if verb[0] == "predict":
                told = {0.0: "buffered, no sync", 0.1: "fdatasync behind 0.1 of the writes", 1.0: "behind every write"}
                assert told[sync_frac] in " ".join(captured.out.split())


def test_a_buffered_trace_on_a_direct_profile(profile, trace, tmp_path, capsys):
    document = profile.as_document() | {"settings": {"access": Access("direct").as_document()}}
    (tmp_path / "direct.json").write_text(json.dumps(document))
    assert main(["predict", str(tmp_path / "direct.json"), "--trace", str(trace), "--model", "product"]) == 0
    captured = capsys.readouterr()
    assert "100% of the trace's requests are buffered" in captured.err
    assert "O_DIRECT" in captured.out
    assert main(["predict", str(profile.path), "--trace", str(trace), "--model", "product"]) == 0
    assert "buffered" not in capsys.readouterr().err


def test_options_as_json(profile, capsys):
    assert main(["predict", str(profile.path), *OPTIONS, "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "flextrace.prediction/1"
    (only,) = document["predictions"]
    expected = Predictor(profile).predict(Workload(64 * MIB, 0.5, 0.5, 32768.0, 1.0))
    assert only["throughput_bytes_per_s"] == expected.throughput_bytes_per_s
    assert only["workload"]["uniqueBytes"] == 64 * MIB
    assert document["profile"]["sha256"]
    assert {score["model"] for score in document["models"]} == set(MODELS)
    assert only["model"] == profile.models["best"]
    assert document["ignored"] == []


def test_options_as_text(profile, capsys):
    assert main(["predict", str(profile.path), *OPTIONS]) == 0
    captured = capsys.readouterr()
    expected = Predictor(profile).predict(Workload(64 * MIB, 0.5, 0.5, 32768.0, 1.0)).throughput_bytes_per_s
    assert f"throughput {expected / 1e6:.4g} MB/s" in captured.out
    assert "warm cache" in captured.out
    assert f"{profile.models['best']} (used)" in " ".join(captured.out.split())
    assert "orthogonal (not fitted)" in captured.out
    assert "OUTSIDE" not in captured.out
    assert "may not hold" not in captured.out
    assert all(len(line) <= 100 for line in captured.out.splitlines())
    assert captured.err == ""


def test_the_error_of_measuring_again_stands_beside_those_of_predicting(profile, tmp_path, capsys):
    document = profile.as_document()
    once = {json.dumps(point["workload"]): point for point in reversed(document["points"])}
    document["points"] = list(once.values())
    path = tmp_path / "p.json"

    def told(*options):
        document["models"]["points"] = len(document["points"])
        path.write_text(json.dumps(document))
        assert main(["predict", str(path), *OPTIONS, *options]) == 0
        return capsys.readouterr().out

    assert "repeatability error, the same: not known, nothing was measured twice" in told()
    assert json.loads(told("--format", "json"))["repeatability"]["median"] is None
    for percent in (10, 20, 30):
        workload = Workload(percent * MIB, 0.5, 0.5, 4096.0, 1.0).as_document()
        for repeat, factor in enumerate((1 - percent / 200, 1 + percent / 200)):
            point = {"workload": workload, "throughput_bytes_per_s": 1e6 * factor, "role": "random", "repeat": repeat}
            document["points"].append({**document["points"][0], **point})
    assert "repeatability error, the same: 20% / 28%, of 3 workloads measured again" in told()
    repeated = json.loads(told("--format", "json"))["repeatability"]
    assert (repeated["median"], repeated["largest"]) == (pytest.approx(0.2), pytest.approx(0.3))


@pytest.mark.parametrize("model", ["best", "product"])
def test_outside_is_said(profile, capsys, model):
    assert main(["predict", str(profile.path), *OPTIONS, "--unique-bytes", "1T", "--model", model]) == 0
    out = capsys.readouterr().out
    assert "OUTSIDE the measured range in uniqueBytes" in out
    assert "uniqueBytes is 1.02e+03 times the largest measured" in out
    # The product form takes that end as it is, and so its interval.
    assert "outside of what was measured it may not hold" in out


def test_a_model_by_name(profile, capsys):
    for model in ("product", "utilization", "learned"):
        assert main(["predict", str(profile.path), *OPTIONS, "--model", model, "--format", "json"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert document["predictions"][0]["model"] == model
    assert main(["predict", str(profile.path), *OPTIONS, "--model", "orthogonal"]) == 1
    assert "no orthogonal sample" in capsys.readouterr().err


def test_a_trace_is_predicted_by_its_footprint_and_by_its_depth(profile, trace, capsys):
    assert main(["predict", str(profile.path), "--trace", str(trace), "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    footprint, equivalent = document["predictions"]
    layer = characterization_of(characterize.open(trace)).layers["vfs"]
    assert footprint["workload"] == layer.parameters.as_document()
    assert equivalent["workload"]["uniqueBytes"] == pytest.approx(layer.locality.equivalent_unique_bytes)
    expected = Predictor(profile).predict(layer.parameters).throughput_bytes_per_s
    assert footprint["throughput_bytes_per_s"] == expected
    assert document["ignored"] == ["syncFrac"]
    assert document["input"]["path"] == str(trace)


def test_a_trace_with_one_parameter_changed(profile, trace, capsys):
    arguments = ["predict", str(profile.path), "--trace", str(trace), "--unique-bytes", "1G", "--format", "json"]
    assert main(arguments) == 0
    (only,) = json.loads(capsys.readouterr().out)["predictions"]
    assert only["workload"]["uniqueBytes"] == 1 << 30
    assert only["workload"]["sizeMean"] == pytest.approx(8192)


def test_text_of_a_trace_names_what_is_ignored(profile, trace, capsys):
    assert main(["predict", str(profile.path), "--trace", str(trace)]) == 0
    out = capsys.readouterr().out
    assert "footprint" in out
    assert "mean LRU depth" in out
    assert "ignored: syncFrac 0.1" in out


def test_ratio_to_a_machine_that_is_twice_as_fast(profile, tmp_path, capsys):
    document = profile.as_document()
    for point in document["points"]:
        point["throughput_bytes_per_s"] *= 2
        point["ci95_half_width_bytes_per_s"] *= 2
    (tmp_path / "fast.json").write_text(json.dumps(document))
    # The product form scales exactly.
    arguments = ["predict", str(profile.path), *OPTIONS, "--model", "product", "--against", str(tmp_path / "fast.json")]
    assert main([*arguments, "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    (ratio,), (only,) = document["ratios"], document["predictions"]
    assert ratio["ratio"] == pytest.approx(0.5)
    assert ratio["other_bytes_per_s"] == pytest.approx(2 * only["throughput_bytes_per_s"])
    width = math.log(only["interval_high"] / only["throughput_bytes_per_s"])
    assert math.log(ratio["interval_high"] / ratio["ratio"]) == pytest.approx(width * math.sqrt(2))
    assert main(arguments) == 0
    assert "0.5 times the throughput of fast.json" in capsys.readouterr().out


def test_missing_parameters_are_named(profile, capsys):
    assert main(["predict", str(profile.path), "--unique-bytes", "64M"]) == 2
    error = capsys.readouterr().err
    for option in ("--seq-frac", "--read-frac", "--size-mean", "--process-num"):
        assert option in error


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--unique-bytes", "0"], "--unique-bytes 0: give a number above 0"),
        (["--size-mean", "0K"], "--size-mean 0: give a number above 0"),
        (["--process-num", "-1"], "--process-num -1: give a number above 0"),
        (["--process-num", "0.5"], "--process-num 0.5: give a number of at least 1"),
        (["--process-num", "nan"], "--process-num nan: give a number above 0"),
        (["--process-num", "inf"], "--process-num inf: give a number above 0"),
        (["--set", "depth=nan"], "--set depth=nan: give NAME=VALUE with a number"),
        (["--size-mean", "65M"], "requests of 65 MiB touch more than 64 MiB: give a smaller --size-mean"),
    ],
)
def test_values_that_no_workload_has(profile, capsys, words, said):
    assert main(["predict", str(profile.path), *OPTIONS, *words]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"settings": None}, "settings is no object"),
        ({"environment": []}, "environment is no object"),
        ({"settings": {"access": {"sync_frac": "often"}}}, "settings.access has sync_frac 'often'"),
        ({"settings": {"access": {"sync_frac": 1.5}}}, "settings.access has sync_frac 1.5"),
        ({"settings": {"access": 3}}, "settings has access 3"),
        ({"settings": {"stop_rule": "lee"}}, "settings stops at 'lee'"),
        ({"settings": {"target": 0}}, "settings stops at None, 0"),
        ({"models": "x"}, "models is no object"),
        ({"throughput_bytes_per_s": "fast"}, "points[3] has throughput_bytes_per_s 'fast'"),
        ({"throughput_bytes_per_s": math.nan}, "points[3] has throughput_bytes_per_s nan"),
        ({"throughput_bytes_per_s": -1}, "points[3] has throughput_bytes_per_s -1"),
        ({"workload": {"uniqueBytes": 10**400}}, "points[3].workload has uniqueBytes 1000000"),
        ({"workload": {"uniqueBytes": math.nan}}, "points[3].workload has uniqueBytes nan"),
        ({"workload": {"processNum": "4"}}, "points[3].workload has processNum '4'"),
        ({"workload": {"readFrac": 1.5}}, "points[3].workload has readFrac 1.5"),
        ({"workload": {"sizeMean": None}}, "points[3].workload has sizeMean None"),
        ({"ci95_half_width_bytes_per_s": "wide"}, "points[3] has ci95_half_width_bytes_per_s 'wide'"),
        ({"interval90_bytes_per_s": "ab"}, "points[3] has interval90_bytes_per_s 'ab'"),
        ({"steady": "no"}, "points[3] has steady 'no'"),
        ({"role": 5}, "points[3] has role 5"),
        ({"device_frac": [1]}, "points[3] has device_frac [1]"),
        ({"response_time": {"read": {"mean_ns": "1"}}}, "points[3] has response_time"),
        ({"points": {}}, "points is no list of objects"),
        ({"regions": [{"low_bytes": 5}]}, "regions[0] has no high_bytes"),
        ({"regions": [{"low_bytes": 5, "high_bytes": 3}]}, "regions[0] ends at 3"),
        ({"regions": [{"low_bytes": 5, "high_bytes": 7, "focal": 1}]}, "regions[0].focal is no object"),
        ({"boundaries_bytes": "12"}, "boundaries_bytes '12'"),
        ({"seed": "x"}, "seed 'x'"),
        ({"complete": "no"}, "complete 'no'"),
        ({"environment": {"directory": 5}}, "environment has directory 5"),
        ({"models": {"scores": [{"model": "product"}], "best": "product"}}, "models.scores[0] has no errors"),
        ({"knee": {"converged": True}}, "knee has no rounds"),
        ({"table": {"parameters": "all"}}, "table has no extra"),
        ({"drift": {"reference_points": 5}}, "drift is no list of objects"),
    ],
)
def test_a_damaged_profile_is_told_in_one_line(profile, tmp_path, capsys, changes, said):
    document = json.loads(profile.path.read_text())
    for name, value in changes.items():
        if name in {*document, "knee", "table"}:
            document[name] = value
        elif name == "workload":
            document["points"][3][name] |= value
        else:
            document["points"][3][name] = value
    (tmp_path / "p.json").write_text(json.dumps(document))
    assert main(["predict", str(tmp_path / "p.json"), *OPTIONS]) == 1
    error = capsys.readouterr().err
    assert said in error
    assert "is damaged" in error


def test_a_profile_of_brackets_is_none(tmp_path, capsys):
    (tmp_path / "p.json").write_text("[" * 100_000)
    assert main(["predict", str(tmp_path / "p.json"), *OPTIONS]) == 1
    assert "no JSON document" in capsys.readouterr().err


def test_wrong_files_and_models_are_named(profile, tmp_path, capsys):
    assert main(["predict", str(tmp_path / "none.json"), *OPTIONS]) == 1
    assert main(["predict", str(profile.path), *OPTIONS, "--model", "oracle"]) == 2
    assert "oracle" in capsys.readouterr().err


def test_an_incomplete_profile_warns(profile, tmp_path, capsys):
    document = profile.as_document() | {"complete": False}
    predict = ["predict", str(tmp_path / "p.json"), *OPTIONS, "--model", "product"]
    (tmp_path / "p.json").write_text(json.dumps(document))
    assert main(predict) == 0
    assert "is not complete: continue it with 'flextrace scale --resume'" in capsys.readouterr().err
    (tmp_path / "p.json").write_text(json.dumps(document | {"ended_early": "cannot write to d"}))
    assert main(predict) == 0
    assert "is not complete: cannot write to d; continue it with" in capsys.readouterr().err


def test_a_machine_that_was_hardly_ever_steady_warns_and_says_the_share(profile, tmp_path, capsys):
    document = profile.as_document()
    document["points"] = document["points"][:20]
    document["points"] += [point | {"role": "random", "steady": False} for point in document["points"]]
    path = tmp_path / "p.json"
    for unsteady, warned in ((10, False), (11, True)):
        for point in document["points"][:unsteady]:
            point["steady"] = False
        path.write_text(json.dumps(document))
        told = f"profile {path}: {unsteady} of 20 points (55%) that predictions rest on were not steady"
        assert main(["predict", str(path), *OPTIONS, "--model", "product"]) == 0
        assert (told in capsys.readouterr().err) == warned
        assert main(["rank", "--workloads", "table5.2", str(path), "--model", "product"]) == 0
        assert (told in capsys.readouterr().err) == warned


def test_a_profile_around_a_knee_says_what_it_does_not_know(profile, tmp_path, capsys):
    document = profile.as_document()
    document["knee"] = {"converged": True, "rounds": 1, "moving": [], "ranges": {}}
    (tmp_path / "knee.json").write_text(json.dumps(document))
    recording = made_trace(
        [read(4096 * at, 4096, 1000 * at, 500, missed_bytes=0) for at in range(100)],
        files=[{"file": 1, "size_bytes": 400 * 4096}],
        start_monotonic_ns=1,
        end_monotonic_ns=100_000,
    )
    path = characterize.write(recording, tmp_path / "t.iotrace")
    for verb in (
        ["predict", str(tmp_path / "knee.json"), "--trace", str(path)],
        ["rank", str(path), str(tmp_path / "knee.json")],
    ):
        assert main(verb) == 0
        assert "was measured around a knee" in capsys.readouterr().err


def test_rank_warns_of_a_trace_that_goes_about_storage_otherwise(profile, trace, tmp_path, capsys):
    document = profile.as_document()
    document["settings"]["access"] = Access("direct").as_document()
    (tmp_path / "direct.json").write_text(json.dumps(document))
    assert main(["rank", str(trace), str(tmp_path / "direct.json")]) == 0
    assert "the profile was measured O_DIRECT" in capsys.readouterr().err
