# SPDX-License-Identifier: Apache-2.0
"""What compare runs, and under which conditions: those of the application, as the table says."""

from __future__ import annotations

import math
import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import characterize
from characterize.errors import FlextraceError
from characterize.layout import FILE_DTYPE, IO_DTYPE, TASK_DTYPE, FileType, HeaderFlag, IoFlag, IoOp, RecordKind
from characterize.trace import Header, Trace
from characterize.workload import Workload
from selfscale.comparing.comparison import load, remarks_of
from selfscale.measuring.access import Access
from selfscale.predicting.relative import Estimated
from tests.formulas.synthetic_machine import MIB
from tests.traces.replay_result import result

pytestmark = pytest.mark.parallel


def recording(
    path: Path, *, resident_bytes: int = 0, memory_limit_bytes: int | None = 128 * MIB, size_bytes: int = MIB
) -> Trace:
    """400 requests of 4 KiB over one file of 1 MiB: each of 256 blocks read or written once, then 144 of them again."""
    io = np.zeros(400, IO_DTYPE)
    io["kind"] = RecordKind.IO
    io["op"] = np.where(np.arange(400) % 2, IoOp.WRITE, IoOp.READ)
    io["start_ns"] = 1000 + 10_000 * np.arange(400)
    io["duration_ns"] = 5000
    io["thread"] = io["process"] = 17
    io["file"] = 1
    io["asked_bytes"] = io["result"] = 4096
    io["offset"] = 4096 * (np.arange(400) % 256)
    io["missed_bytes"] = 2**32 - 1
    file = np.zeros(1, FILE_DTYPE)
    file["kind"], file["type"], file["file"] = RecordKind.FILE, FileType.REGULAR, 1
    file["size_bytes"], file["resident_bytes"] = size_bytes, resident_bytes
    task = np.zeros(1, TASK_DTYPE)
    task["kind"], task["thread"], task["process"] = RecordKind.TASK, 17, 17
    metadata = {} if memory_limit_bytes is None else {"memory_limit_bytes": memory_limit_bytes}
    header = Header(start_monotonic_ns=1, end_monotonic_ns=4_000_000, metadata=metadata)
    arrays = {RecordKind.IO: io, RecordKind.FILE: file, RecordKind.TASK: task}
    characterize.write(Trace(header, arrays, {1: "/data/base.db"}), path)
    return characterize.open(path)


class Runs:
    """Stands for the engine, Willy's measurement and the prediction; remembers what it was asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.replays: list[dict[str, Any]] = []
        self.measured: list[dict[str, Any]] = []
        self.aged: list[dict[str, Any]] = []
        monkeypatch.setattr("selfscale.comparing.comparison_runs.replay", self.replay)
        monkeypatch.setattr("selfscale.comparing.comparison_runs.measure", self.measure)
        monkeypatch.setattr("selfscale.comparing.comparison_runs.age", self.age)
        monkeypatch.setattr("selfscale.comparing.comparison_predictions.Predictor", self.predictor)
        monkeypatch.setattr("selfscale.comparing.comparison_runs.MemoryGroup", FakeGroup)

    def replay(self, path: Path, directory: Path, **options: Any) -> dict[str, Any]:
        trace = characterize.open(path)
        self.replays.append(
            {"untimed": trace.untimed, "directory": directory, "requests": len(trace.requests), **options}
        )
        self.replays[-1]["resident"] = trace.files["resident_bytes"].sum() / trace.files["size_bytes"].sum()
        assert Path(directory).is_dir()
        return result(throughput=80e6 if trace.untimed else 110e6)

    def measure(self, workload: Workload, directory: Path, **options: Any) -> SimpleNamespace:
        replayed = sum(one["phase"] == "run" for one in self.replays)
        self.measured.append({"workload": workload, "directory": directory, "replayed_before": replayed, **options})
        times = {name: result()["response_time"][name] for name in ("read", "write")}
        return SimpleNamespace(throughput_bytes_per_s=200e6, response_time=times, steady=True, reason="")

    def age(self, image: Path, group: Any, seconds: float, say: Any, **machine: Any) -> float:
        self.aged.append({"directory": image, "memory_group": group, "seconds": seconds, **machine})
        self.aged[-1]["measured_before"] = len(self.measured)
        return seconds

    @classmethod
    def predictor(cls, profile: Any) -> SimpleNamespace:
        return SimpleNamespace(profile=profile, predict=cls.predict)

    @staticmethod
    def predict(workload: Workload) -> SimpleNamespace:
        throughput = 50e6 if workload.unique_bytes > 100 * MIB else 400e6
        return SimpleNamespace(
            throughput_bytes_per_s=throughput,
            interval_low=0.8 * throughput,
            interval_high=math.nan,
            estimated=Estimated(throughput, 0.8 * throughput, math.nan),
            model="product",
            region=0,
            inside_range=True,
            outside=[],
            extended_note="",
        )


class FakeGroup:
    def __init__(self, limit_bytes: int):
        self.limit_bytes = limit_bytes

    def __enter__(self) -> FakeGroup:
        return self

    def __exit__(self, *error: object) -> None:
        pass


def profile(limit: int | None = 128 * MIB, mode: str = "buffered", *, regions: int = 2, complete: bool = True) -> Any:
    return SimpleNamespace(
        lacks="" if complete else "is not complete: the budget ended",
        regions=[None] * regions,
        environment={"memory_limit_bytes": limit},
        path=None,
        access=Access(mode),
        storage=[],
        table={},
        knee={},
        range_of=lambda parameter: (1 * MIB, 512 * MIB),
        models={
            "scores": [
                {"model": "product", "errors": {"median": 0.12}},
                {"model": "orthogonal", "errors": {}},
                {"model": "learned", "errors": {"median": 0.05}},
            ]
        },
    )


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    pytest.importorskip("replayer.run", reason="the replay engine's driver is not there")
    return Runs(monkeypatch)


def test_a_profile_without_the_page_cache_is_no_prediction_for_who_uses_it(runs: Runs, tmp_path: Path) -> None:
    from selfscale.compare import compare  # noqa: PLC0415

    comparison = compare(recording(tmp_path / "a.iotrace"), profile(mode="direct"), tmp_path)
    rows = {row["row"]: row for row in comparison.document["rows"]}
    assert any("O_DIRECT" in reason for reason in rows["prediction"]["reasons"])
    assert not rows["prediction"]["trustworthy"]
    assert "prediction_extended" not in rows  # all of its reads are from the device


def test_a_profile_that_tells_nothing_beyond_its_cache_predicts_no_cold_reads(runs: Runs, tmp_path: Path) -> None:
    from selfscale.compare import compare  # noqa: PLC0415

    trace = recording(tmp_path / "a.iotrace")
    comparison = compare(trace, profile(regions=1, complete=False), tmp_path)
    rows = {row["row"]: row for row in comparison.document["rows"]}
    assert "prediction_extended" not in rows
    assert any("predicted as cached ones" in note for note in rows["prediction"]["notes"])
    assert any("not complete" in reason for reason in rows["prediction"]["reasons"])
    assert not rows["prediction"]["trustworthy"]


def test_predictions_from_the_profile_of_another_machine_are_marked(runs: Runs, tmp_path: Path) -> None:
    from selfscale.compare import compare  # noqa: PLC0415

    other = profile()
    other.environment["kernel"] = "2.6.32"
    for one, marked in ((other, True), (profile(), False)):
        document = compare(recording(tmp_path / "a.iotrace"), one, tmp_path, repeat=1).document
        (tmp_path / "a.iotrace").unlink()
        found = {row["row"]: "\n".join(row["reasons"]) for row in document["rows"]}
        for name in ("prediction", "prediction_equivalent", "prediction_extended"):
            assert ("another machine: kernel was 2.6.32, is " in found[name]) == marked
        assert "another machine" not in found["replay"]


def test_compare_runs_every_row_under_the_applications_conditions(runs: Runs, tmp_path: Path) -> None:
    from selfscale.compare import compare  # noqa: PLC0415

    trace = recording(tmp_path / "a.iotrace")
    comparison = compare(trace, profile(), tmp_path, repeat=2, seed=5)
    table = comparison.table
    assert list(table.index)[:5] == ["application", "replay", "willy", "willy_extended", "prediction"]
    assert comparison.trustworthy, comparison.document["reasons"]

    # 200 reads, of which 128 are the first touch of their block, nothing resident.
    assert table.loc["application", "coldFrac"] == pytest.approx(128 / 200)
    assert table.loc["application", "throughput_in_io_bytes_per_s"] == pytest.approx(4096 / 5e-6)
    assert table.loc["application", "mean_ns"] == pytest.approx(5000)
    assert table.loc["replay", "error_throughput_in_io_bytes_per_s"] == pytest.approx(110e6 / (4096 / 5e-6) - 1)
    assert not table.loc["willy", "trustworthy"]
    # Only what repeats the application's own computing can be held against its elapsed time.
    assert table["throughput_bytes_per_s"].notna().tolist()[:5] == [True, True, False, False, False]
    assert table.loc["prediction", "mean_ns"] == pytest.approx(4096 / 400e6 * 1e9)

    # x = 0.64 of the read half of the bytes at 50 MB/s, the rest at 400 MB/s.
    share = 128 / 200 / 2
    expected = 1 / ((1 - share) / 400e6 + share / 50e6)
    assert table.loc["prediction_extended", "throughput_in_io_bytes_per_s"] == pytest.approx(expected)

    rows = {row["row"]: row for row in comparison.document["rows"]}
    assert rows["prediction"]["cross_validated_median_errors"] == {"product": 0.12, "learned": 0.05}
    assert any("product 12%, learned 5%" in note for note in rows["prediction"]["notes"])

    ran = [one for one in runs.replays if one["phase"] == "run"]
    prepared = [one for one in runs.replays if one["phase"] == "prepare"]
    # In turns, and in the opposite order in the second round.
    assert [one["untimed"] for one in ran] == [False, True, True, False]
    assert [one["replayed_before"] for one in runs.measured] == [1, 3]
    assert all(one["memory_group"].limit_bytes == 128 * MIB and one["cache"] == "recorded" for one in ran)
    assert all("memory_group" not in one for one in prepared)
    assert {one["requests"] for one in ran} == {400}
    assert len({id(one["memory_group"]) for one in ran}) == len(ran)
    assert [one["workload"].unique_bytes for one in runs.measured] == [MIB, MIB]
    assert len({one["seed"] for one in runs.measured}) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.iotrace"]


def test_without_willy_where_it_cannot_have_the_parameters_the_others_are_compared(runs: Runs, tmp_path: Path) -> None:
    """8 threads read the same block at once: of 8 files that are 4 KiB together none holds a request."""
    from selfscale.compare import compare  # noqa: PLC0415

    alone = recording(tmp_path / "alone.iotrace")
    io = alone.arrays[RecordKind.IO].copy()
    io["op"], io["offset"], io["thread"] = IoOp.READ, 0, 17 + np.arange(400) % 8
    io["start_ns"] = 1000 + 80_000 * (np.arange(400) // 8)
    characterize.write(Trace(alone.header, alone.arrays | {RecordKind.IO: io}, alone.paths), tmp_path / "crowd.iotrace")
    comparison = compare(characterize.open(tmp_path / "crowd.iotrace"), profile(), tmp_path, repeat=1)
    assert list(comparison.table.index)[:3] == ["application", "replay", "prediction"]
    assert comparison.trustworthy, comparison.document["reasons"]
    assert runs.measured == []
    (note,) = [note for note in comparison.document["rows"][0]["notes"] if "Willy" in note]
    assert "uniqueBytes 4 KiB is less than one request of 4 KiB in each of 8 files" in note


def test_the_extended_willy_is_as_cold_as_the_application(runs: Runs, tmp_path: Path) -> None:
    from selfscale.compare import compare  # noqa: PLC0415

    trace = recording(tmp_path / "a.iotrace", resident_bytes=MIB * 3 // 4)
    comparison = compare(trace, profile(), tmp_path, repeat=1)
    assert comparison.table.loc["application", "coldFrac"] == pytest.approx(0.16)
    assert comparison.table.loc["willy_extended", "coldFrac"] == pytest.approx(0.16, abs=0.005)
    willy = [one for one in runs.replays if one["untimed"]]
    assert 0 < willy[0]["resident"] < 1


def test_direct_reads_are_predicted_as_reads_from_the_device(runs: Runs, tmp_path: Path) -> None:
    from selfscale.compare import compare  # noqa: PLC0415

    cached = recording(tmp_path / "a.iotrace", resident_bytes=MIB)
    io = cached.arrays[RecordKind.IO].copy()
    io["flags"] |= np.uint32(IoFlag.DIRECT)
    characterize.write(Trace(cached.header, cached.arrays | {RecordKind.IO: io}, cached.paths), tmp_path / "d.iotrace")
    table = compare(characterize.open(tmp_path / "d.iotrace"), profile(), tmp_path, repeat=1).table
    # Half of the bytes at 50 MB/s, the writes at 400 MB/s.
    expected = 1 / (0.5 / 400e6 + 0.5 / 50e6)
    assert table.loc["prediction_extended", "throughput_in_io_bytes_per_s"] == pytest.approx(expected)


def test_willy_is_measured_in_an_aged_page_cache_as_the_points_of_a_profile_are(runs: Runs, tmp_path: Path) -> None:
    from selfscale.compare import compare  # noqa: PLC0415

    document = compare(recording(tmp_path / "a.iotrace"), profile(), tmp_path, max_seconds=7.0).document
    (aged,) = runs.aged  # once for all its runs, which have one group
    assert aged["cache_bytes"] == 128 * MIB
    assert (aged["seconds"], aged["measured_before"]) == (7.0, 0)
    assert {(one["directory"], one["memory_group"]) for one in runs.measured} == {
        (aged["directory"], aged["memory_group"])
    }
    assert {row["row"]: row["page_cache"] for row in document["rows"]}["willy"] == "warm start, aged"


@pytest.mark.parametrize(("limit", "why"), [(None, "no memory group"), (128 * MIB, "no room for files of 256 MiB")])
def test_why_a_page_cache_is_not_aged_is_said(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int | None, why: str
) -> None:
    from selfscale.compare import compare  # noqa: PLC0415

    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=255 * MIB))
    trace = recording(tmp_path / "a.iotrace", memory_limit_bytes=limit)
    document = compare(trace, profile(limit), tmp_path, repeat=1).document
    assert runs.aged == []
    willy = {row["row"]: row for row in document["rows"]}["willy"]
    assert willy["page_cache"] == "warm start, not aged"
    assert any(note.startswith("page cache not aged: ") and why in note for note in willy["notes"])


def test_willy_says_that_it_overwrites_where_the_application_appends(runs: Runs, tmp_path: Path) -> None:
    from selfscale.compare import compare  # noqa: PLC0415

    trace = recording(tmp_path / "a.iotrace", size_bytes=MIB // 2)
    # The upper half of the blocks is behind the end: 64 of 200 writes; the second round finds the file grown.
    remarks = [
        text
        for _, text, labels in remarks_of(compare(trace, profile(), tmp_path, repeat=1).document)
        if "Willy" in labels
    ]
    assert any(text.startswith("overwrites only; 32% of the bytes") for text in remarks), remarks


def test_different_memory_limits_are_not_trusted(runs: Runs, tmp_path: Path) -> None:
    from selfscale.compare import compare  # noqa: PLC0415

    trace = recording(tmp_path / "a.iotrace", memory_limit_bytes=None)
    document = compare(trace, profile(), tmp_path, repeat=1).document
    assert not document["trustworthy"]
    assert document["conditions"]["equal_memory"] is False
    assert "memory limit 128 MiB, the application had none" in " ".join(document["reasons"])


def test_a_limit_that_holds_for_the_recording_and_the_runs_makes_no_difference(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as that of a container in which everything ran: the recording does not tell it, nor need it."""
    from selfscale.compare import compare  # noqa: PLC0415

    monkeypatch.setattr("replayer.running.confine.current_limit", lambda: 2048 * MIB)
    trace = recording(tmp_path / "a.iotrace", memory_limit_bytes=None)
    document = compare(trace, profile(None), tmp_path, repeat=1).document
    assert not any("memory limit" in reason for reason in document["reasons"])
    assert document["conditions"]["equal_memory"] is True


def test_a_trace_that_never_ran_is_refused(runs: Runs, tmp_path: Path) -> None:
    from selfscale.compare import compare  # noqa: PLC0415

    trace = recording(tmp_path / "a.iotrace")
    trace.header.flags |= HeaderFlag.PLANNED
    with pytest.raises(FlextraceError, match="recording"):
        compare(trace, profile(), tmp_path)
    assert runs.replays == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_who_is_ended_by_a_signal_cleans_up(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the same way as an interrupt: what was begun is undone."""
    from flextrace.main import main  # noqa: PLC0415

    recording(tmp_path / "a.iotrace")
    monkeypatch.setattr("selfscale.profile.Profile.load", lambda path: profile())
    cleaned: list[bool] = []

    def ended(*arguments: Any, **options: Any) -> None:
        try:
            os.kill(os.getpid(), number)
            time.sleep(10)
        finally:
            cleaned.append(True)

    def mine(number: int, frame: object) -> None:
        """Not what the tests were started with: nohup has SIGHUP ignored, and it would stay so."""

    before = signal.signal(number, mine)
    monkeypatch.setattr("selfscale.compare.compare", ended)
    command = ["compare", str(tmp_path / "a.iotrace"), "--profile", "p.json", "--directory", str(tmp_path)]
    assert main(command) == 130
    assert cleaned == [True]
    assert signal.signal(number, before) is mine


def test_the_verb_prints_a_table_and_writes_the_document(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from flextrace.main import main  # noqa: PLC0415

    recording(tmp_path / "a.iotrace")
    monkeypatch.setattr("selfscale.profile.Profile.load", lambda path: profile(256 * MIB))
    command = ["compare", str(tmp_path / "a.iotrace"), "--profile", "p.json", "--directory", str(tmp_path / "work")]
    command += ["--repeat", "2", "-o", str(tmp_path / "c.json")]
    assert main(command) == 3
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 100
    assert "NOT TRUSTWORTHY" in text
    assert "memory limit 256 MiB, the application had 128 MiB" in text
    assert load(tmp_path / "c.json").document["repeat"] == 2
    assert not (tmp_path / "work").exists()
    assert main(command) == 2
    assert "--force" in capsys.readouterr().err
    assert main([*command, "--force", "--repeat", "0"]) == 2


def test_no_directory_is_made_where_there_is_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from flextrace.main import main  # noqa: PLC0415

    monkeypatch.setattr("selfscale.profile.Profile.load", lambda path: profile())
    command = ["compare", str(tmp_path / "missing"), "--profile", "p.json", "--directory", str(tmp_path / "work")]
    assert main(command) == 1
    assert not (tmp_path / "work").exists()
