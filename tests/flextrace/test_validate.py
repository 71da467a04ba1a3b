# SPDX-License-Identifier: Apache-2.0
"""The verb validate: its order, its table against a computation by hand, resuming, refusals."""

import fcntl
import json
import os
import shlex
import signal
from dataclasses import replace

import numpy as np
import pytest

from characterize.errors import FlextraceError
from characterize.workload import Workload
from flextrace.main import main
from flextrace.runs import measuring
from selfscale.measure import Point
from selfscale.measuring.access import Access
from selfscale.predict import Predictor
from selfscale.profile import Profile
from selfscale.profiles.learned_points import learned_points
from selfscale.validate import compare_models, plan
from tests.formulas.validated_machine import command

pytestmark = pytest.mark.parallel
pytest_plugins = ["tests.formulas.validated_machine"]


def test_two_passes_of_the_same_workloads_in_different_order_with_the_samples_between(made):
    validation = plan(made, 30, seconds=2.0)
    roles = [(step.role, step.repeat) for step in validation.steps]
    assert roles == sorted(roles, key=[("random", 0), ("orthogonal", 0), ("random", 1)].index)
    first = [step.workload for step in validation.steps if (step.role, step.repeat) == ("random", 0)]
    second = [step.workload for step in validation.steps if (step.role, step.repeat) == ("random", 1)]
    assert first != second
    assert sorted(first, key=repr) == sorted(second, key=repr) == sorted(validation.workloads, key=repr)
    points = len(learned_points(made))
    assert points / 2 < len(validation.samples[1]) <= points < len(validation.samples[2]) <= 2 * points
    assert len({step.workload for step in validation.steps if step.role == "orthogonal"}) == roles.count(
        ("orthogonal", 0)
    )


def test_rows_by_hand(made):
    validation = plan(made, 5, seconds=2.0, orthogonal=False)
    predictor = Predictor(made, "product")
    predicted = predictor.table(validation.workloads)["throughput_bytes_per_s"].to_numpy()
    factors = np.array([1.0, 0.5, 2.0, 0.8, 1.25])
    points = [
        Point(workload, value / factor * again, 0.0, role="random", repeat=repeat)
        for workload, value, factor in zip(validation.workloads, predicted, factors, strict=True)
        for repeat, again in ((0, 1.0), (1, 1.1))
    ]
    rows = {row.name: row for row in compare_models(made, validation, points)["rows"]}
    # Predicted / measured - 1 = factor - 1: 0, 0.5, 1, 0.2, 0.25.
    product = rows["product"].errors
    assert (product["median"], product["p75"], product["max"]) == pytest.approx((0.25, 0.5, 1.0))
    assert rows["product"].points == len(learned_points(made))
    assert list(rows["repeatability"].errors.values()) == pytest.approx([0.1] * 4)
    focal = made.regions[0].focal
    at_focal = np.mean([p.throughput_bytes_per_s for p in made.measured if p.workload == focal])
    single = np.abs(at_focal - predicted / factors) / (predicted / factors)
    assert rows["single point, focal point of region 1"].errors["median"] == pytest.approx(np.median(single))
    assert [row.name for row in rows.values() if row.used] == [made.models["best"]]


def test_a_workload_that_moved_nothing_is_dropped_and_all_of_them_refused(made):
    validation = plan(made, 3, seconds=2.0, orthogonal=False)
    points = [
        Point(workload, 0.0 if index == 0 else 1e8, 0.0, role="random", repeat=repeat)
        for index, workload in enumerate(validation.workloads)
        for repeat in (0, 1)
    ]
    assert compare_models(made, validation, points)["dropped"] == 1
    with pytest.raises(FlextraceError, match="no random workload"):
        compare_models(made, validation, points[:2])


def test_errors_are_told_of_the_workloads_that_were_compared(place, machine, capsys, monkeypatch):
    def one_moves_nothing(request):
        nothing = len(machine.measured) == 3
        point = machine.measure(request)
        return replace(point, throughput_bytes_per_s=0.0) if nothing else point

    monkeypatch.setattr(measuring, "measure_in", lambda *of, **stopping: one_moves_nothing)
    assert main(command(place, "--no-orthogonal")) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("error on 11 random workloads")
    assert "workloads that moved nothing in their time, left out of the errors: 1" in captured.err


def test_document_and_table(place, machine, capsys):
    assert main(command(place, "--format", "json")) == 0
    document = json.loads((place / "p-validation.json").read_text())
    assert document["schema"] == "flextrace.validation/1"
    assert json.loads(capsys.readouterr().out) == document
    names = [row["name"] for row in document["rows"]]
    assert names[0] == "repeatability"
    assert {"product", "utilization", "learned", "orthogonal, equal points", "orthogonal, double points"} <= set(names)
    assert sum(row["used"] for row in document["rows"]) == 1
    assert len(document["points"]) == len(machine.measured)
    assert document["rows"][0]["errors"]["median"] < 0.2
    assert sorted(path.name for path in place.iterdir()) == ["d", "p-validation.json", "p.json"]


def test_text_is_at_most_100_columns(place, machine, capsys):
    assert main(command(place, "--no-orthogonal")) == 0
    captured = capsys.readouterr()
    assert all(len(line) <= 100 for line in captured.out.splitlines())
    assert "repeatability" in captured.out
    assert "(used)" in captured.out
    assert all(step.role == "random" for step in machine.measured)


def test_interrupted_and_resumed_it_measures_only_the_rest(place, machine, capsys):
    machine.interrupt_at = 9
    assert main(command(place, "--no-orthogonal", "--max-time", "3.1234567")) == 130
    told = capsys.readouterr().err.split("continue with: flextrace ")[1]
    assert main(shlex.split(told)) == 0
    assert len(machine.measured) == 24
    assert len(json.loads((place / "p-validation.json").read_text())["points"]) == 24
    assert not list(place.glob("*.ndjson"))


def test_where_a_compiled_function_is_interrupted_how_to_go_on_is_told_too(place, machine, capsys, monkeypatch):
    """In a model, and in the layout of a run that is resumed."""

    def interrupted(*arguments):
        raise SystemError("returned a result with an exception set") from KeyboardInterrupt()

    for what, options in (
        ("selfscale.validate.compare_models", []),
        ("flextrace.runs.measuring.lay_out", ["--resume"]),
    ):
        monkeypatch.setattr(what, interrupted)
        assert main(command(place, "--no-orthogonal", *options)) == 130
        assert "continue with: flextrace validate --resume" in capsys.readouterr().err
    assert len(machine.measured) == 24


def test_points_of_a_validation_that_goes_on_are_left_alone(place, machine, capsys):
    machine.interrupt_at = 5
    assert main(command(place, "--no-orthogonal")) == 130
    journal = place / "p-validation.json.points.ndjson"
    with journal.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert main(command(place, "--no-orthogonal", "--resume")) == 1
    assert f"{journal} is used by another run of flextrace" in capsys.readouterr().err
    assert len(machine.measured) == 5
    assert main(command(place, "--no-orthogonal", "--resume")) == 0


def test_nothing_to_resume_is_told_before_files_are_laid_out(place, machine, capsys, monkeypatch):
    monkeypatch.setattr(measuring, "lay_out", lambda settings, image, say: pytest.fail("they are"))
    assert main(command(place, "--resume")) == 2
    assert "there is nothing to resume" in capsys.readouterr().err


def test_a_failure_keeps_what_was_measured_and_says_where(place, machine, capsys, monkeypatch):
    def fails(request):
        if len(machine.measured) == 5:
            raise FlextraceError("cannot write to d: No such file or directory")
        return machine.measure(request)

    monkeypatch.setattr(measuring, "age_cache", lambda *arguments, **options: 0.0)
    monkeypatch.setattr(measuring, "measure_in", lambda *of, **stopping: fails)
    assert main(command(place, "--no-orthogonal")) == 1
    error = capsys.readouterr().err
    assert "points.ndjson; continue with: flextrace validate --resume" in error
    assert len(next(place.glob("*.ndjson")).read_text().splitlines()) == 1 + 5


def test_what_cannot_be_resumed_is_refused_before_anything_is_laid_out(place, machine, capsys, monkeypatch):
    machine.interrupt_at = 3
    assert main(command(place, "--no-orthogonal")) == 130
    capsys.readouterr()
    laid_out = []
    monkeypatch.setattr(measuring, "lay_out", lambda *arguments: laid_out.append(1) or 0.0)
    assert main(command(place, "--no-orthogonal", "--resume", "--seed", "4")) == 2
    assert "seed was 0, is 4" in capsys.readouterr().err
    assert not laid_out
    monkeypatch.setattr(measuring, "lay_out", lambda *arguments: os.kill(os.getpid(), signal.SIGTERM))
    assert main(command(place, "--no-orthogonal", "--resume")) == 130
    assert "the run so far is kept; continue with: flextrace validate --resume" in capsys.readouterr().err


def test_a_document_that_cannot_be_written_leaves_what_was_measured(place, machine, capsys, monkeypatch):
    def full(path, text, *, force):
        raise FlextraceError(f"cannot write {path}: No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("flextrace.validate.write_text", full)
        assert main(command(place, "--no-orthogonal")) == 1
    told = capsys.readouterr().err
    assert "points.ndjson; continue with: flextrace validate --resume" in told
    measured = len(machine.measured)
    assert main(shlex.split(told.split("continue with: flextrace ")[1])) == 0
    assert len(machine.measured) == measured


def test_a_directory_that_is_missing_is_told_before_anything_runs(place, machine, capsys):
    assert main(command(place, "-o", str(place / "none" / "v.json"))) == 2
    words = ["compare", "t.iotrace", "--profile", str(place / "p.json"), "--directory", str(place / "d")]
    assert main([*words, "-o", str(place / "none" / "c.json")]) == 2
    assert capsys.readouterr().err.count("its directory does not exist; create it") == 2
    assert not machine.measured


def test_refusals(made, place, machine, capsys):
    for option in ("--random", "--workloads"):
        assert main(command(place, option, "0")) == 2
        assert "--random 0: give a number of random workloads" in capsys.readouterr().err
    assert main(command(place, "--resume", "--force")) == 2
    assert "--resume continues the interrupted run that --force forgets" in capsys.readouterr().err
    image = place / "d" / measuring.IMAGE
    image.mkdir()
    assert main(command(place, "-o", str(image / "v.json"))) == 2
    assert "its directory is removed at the end" in capsys.readouterr().err
    image.rmdir()
    (place / "loop").symlink_to(place / "loop")
    assert main(command(place, "--directory", str(place / "loop"))) == 2
    assert f"{place / 'loop'} is not a directory: name another" in capsys.readouterr().err
    (place / "p-validation.json").write_text("")
    assert main(command(place)) == 2
    assert "--force" in capsys.readouterr().err
    Profile(measured=[Point(Workload(1e6, 0.5, 0.5, 4096.0, 1.0), 1e8, 0.0)]).save(place / "p.json")
    assert main(command(place, "--force")) == 1
    assert "no region" in capsys.readouterr().err
    few = replace(Profile.load(made.path), complete=False, models={}, storage=[])
    few.measured = few.measured[:5]
    few.save(place / "p.json")
    assert main(command(place, "--force")) == 1
    told = capsys.readouterr().err
    assert "is not complete: continue it" in told
    assert "no region's focal vector was measured" in told
    assert machine.measured == []


def test_another_machine_is_said_and_is_not_trustworthy(place, machine, capsys):
    document = json.loads((place / "p.json").read_text())
    document["environment"]["kernel"] = "5.0"
    (place / "p.json").write_text(json.dumps(document))
    assert main(command(place, "--no-orthogonal")) == 3
    assert "kernel is" in capsys.readouterr().err


def test_what_the_kernel_keeps_of_the_memory_makes_no_other_machine(place, machine, capsys):
    document = json.loads((place / "p.json").read_text())
    document["environment"]["memory_bytes"] += 1 << 20
    (place / "p.json").write_text(json.dumps(document))
    assert main(command(place, "--no-orthogonal")) == 0
    assert "errors are not its own" not in capsys.readouterr().err


def test_points_of_two_machines_are_no_validation(place, machine, capsys, monkeypatch):
    machine.interrupt_at = 3
    assert main(command(place, "--no-orthogonal")) == 130
    with monkeypatch.context() as another:
        another.setattr("platform.release", lambda: "2.6.32")
        assert main(command(place, "--no-orthogonal", "--resume")) == 2
    assert "cannot resume" in capsys.readouterr().err
    assert main(command(place, "--no-orthogonal", "--resume")) == 0


def test_another_device_of_the_same_name_is_said(place, machine, capsys, monkeypatch):
    document = json.loads((place / "p.json").read_text())
    document["settings"]["access"] = Access("device", "/dev/x").as_document()
    document["environment"] = {"device": "/dev/x", "device_bytes": 2 << 40}
    for score in document["models"]["scores"]:
        score["mean_log"] *= score["model"] != "product"  # the best one then, which needs no page cache
    (place / "p.json").write_text(json.dumps(document))
    monkeypatch.setattr(measuring, "try_device", lambda access, confirm: None)
    monkeypatch.setattr(
        "selfscale.measuring.environment.device_environment", lambda path: {"device": path, "device_bytes": 1 << 40}
    )
    words = ["validate", str(place / "p.json"), "--workloads", "2", "--no-orthogonal", "--write", "--confirm", "1"]
    assert main(words) == 3
    assert f"device_bytes is {1 << 40}, the profile was measured with {2 << 40}" in capsys.readouterr().err
