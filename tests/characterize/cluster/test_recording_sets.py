# SPDX-License-Identifier: Apache-2.0
"""Several recordings are one workload: what is the same number on two machines is not the same file, thread or disk."""

from pathlib import Path

import pytest

from characterize.characterization import characterize
from characterize.cluster import plan
from characterize.cluster.characterize_set import characterize_set
from characterize.errors import FlextraceError
from characterize.grouping import Grouping
from characterize.layout import HeaderFlag, RecordKind
from characterize.requests import LAYERS, Layer
from characterize.stream import open_stream
from characterize.trace_files.archive import pack
from tests.traces.hosts import BLOCK, DAY_NS, recording, two_hosts
from tests.traces.made_trace import made_trace, read, write
from tests.truths.whole_document import document

pytestmark = pytest.mark.parallel


def test_inputs_by_absolute_and_relative_paths():
    inputs = [{"input": {"path": path, "bytes": 1}} for path in ("/data/one", "two")]
    assert plan.input_of(inputs)["input"]["path"].startswith("2 recordings in /")


def test_several_recordings_are_one_workload(tmp_path):
    """Two machines with clocks 500 ns apart; the same numbers are of other files, threads, devices, calls."""
    mine = [read(BLOCK * at, BLOCK, 1000 + 40 * at, 30, file=1, thread=5, id=at + 1) for at in range(20)]
    its = [write(BLOCK * at, BLOCK, 510 + 20 * at, 15, file=1, thread=5, process=7, id=at + 1) for at in range(20)]
    # One call of the first waited for another; the one of the second with that number did not.
    wakes = [{"start_ns": 1040, "duration_ns": 30, "thread": 5, "slept_ns": 4, "cause": 1, "id": 2}]
    blocks = [{"op": 1, "bytes": 4096, "sector": 8 * at, "start_ns": 600 + at, "duration_ns": 9} for at in range(5)]
    shift = 500
    first = recording(
        tmp_path,
        "a.iotrace",
        mine,
        files=[{"file": 1, "size_bytes": 100}],
        paths={1: "/data"},
        wakes=wakes,
        blocks=[{**row, "start_ns": row["start_ns"] + shift} for row in blocks],
        start_monotonic_ns=900,
        start_realtime_ns=DAY_NS + 900,
        end_monotonic_ns=2000,
    )
    second = recording(
        tmp_path,
        "b.iotrace",
        its,
        files=[{"file": 1, "size_bytes": 9000}],
        paths={1: "/data"},
        blocks=blocks,
        start_monotonic_ns=400,
        start_realtime_ns=DAY_NS + 400 + shift,
        end_monotonic_ns=1700,
    )
    moved = [
        {**row, "file": 2, "thread": 10, "process": 12, "start_ns": row["start_ns"] + shift, "id": row["id"] + 20}
        for row in its
    ]
    by_hand = made_trace(
        mine + moved,
        files=[{"file": 1, "size_bytes": 100}, {"file": 2, "size_bytes": 9000}],
        paths={1: "/data", 2: "/data (2)"},
        wakes=wakes,
        blocks=[
            {**row, "start_ns": row["start_ns"] + shift, "device": device} for device in (8 << 20, 1) for row in blocks
        ],
        start_monotonic_ns=900,
        end_monotonic_ns=2200,
    )
    grouping = Grouping("process", 2e-7, LAYERS)
    whole = document(characterize(by_hand, grouping=grouping))
    assert {(group["by"], group["layer"]) for group in whole["groups"]} == {
        (by, layer) for by in ("process", "window") for layer in LAYERS
    }
    for parts in (1, 4, 16):
        merged = document(characterize_set([first, second], grouping=grouping, parts=parts, piece_records=7))
        for name in ("layers", "links", "elapsed_s", "groups"):
            assert merged[name] == whole[name]
    assert whole["layers"]["vfs"]["parameters"]["processNum"] == 2
    assert whole["layers"]["vfs"]["waits"]["count"] == 1
    assert characterize_set([first, second]).provenance["input"]["files"][1]["path"].endswith("b.iotrace")


def test_a_set_lasts_to_its_last_record_where_a_recorder_was_killed(tmp_path):
    """The header of its trace ends where it began, on a machine that had booted much later."""
    whole = {"start_monotonic_ns": 500, "start_realtime_ns": DAY_NS + 500, "end_monotonic_ns": 2000}
    killed = {"start_monotonic_ns": 100, "start_realtime_ns": DAY_NS + 600, "end_monotonic_ns": 100}
    rows = [read(BLOCK * at, BLOCK, 1000 + 100 * at, 30) for at in range(9)]
    paths = [
        recording(tmp_path, "a.iotrace", rows, **whole),
        recording(tmp_path, "b.iotrace", rows * 5, flags=HeaderFlag.INCOMPLETE, **killed),
    ]
    last_ns = 500 + 1000 + 100 * 8 + 30
    for order in (paths, paths[::-1]):
        numbers = characterize_set(order, parts=3, piece_records=7)
        assert numbers.trace["elapsed_from"] == "records"
        assert numbers.elapsed_s == (last_ns - 1000) / 1e9
        assert not numbers.trustworthy
    assert characterize_set(paths[:1]).elapsed_s == (2000 - 500) / 1e9


@pytest.mark.parametrize(
    ("by", "names"),
    [("file", ["/data", "/data (2)"]), ("process", ["sort", "sort (2)"]), ("device", ["8:0", "8:0 (2)"])],
)
def test_groups_of_two_hosts_are_apart(tmp_path, by, names):
    paths = two_hosts(tmp_path)
    layers: tuple[Layer, ...] = ("vfs",) if by != "device" else LAYERS
    for parts in (1, 4):
        groups = characterize_set(paths, grouping=Grouping(by, layers=layers), parts=parts, piece_records=7).groups
        assert [(group.name, group.characterization.requests) for group in groups] == [
            (name, requests) for _ in layers for name, requests in zip(names, (20, 19), strict=True)
        ]
        assert len({group.key for group in groups}) == 2
        alone = [characterize(open_stream(path)).layers["vfs"] for path in paths]
        for group, its in zip(groups, alone, strict=False):
            assert group.characterization.parameters == its.parameters


def test_files_of_three_hosts_are_apart_where_one_looks_like_another_ones_second(tmp_path):
    paths = []
    for host, names in enumerate((["/data"], ["/data", "/data (2)", "/data (3)"], ["/data"])):
        rows = [read(0, BLOCK, 1000 + file, file=file) for file in range(1, 1 + len(names))]
        clock = {"start_monotonic_ns": 900, "start_realtime_ns": DAY_NS + 900, "end_monotonic_ns": 2000}
        files = [{"file": file} for file in range(1, 1 + len(names))]
        paths.append(
            recording(tmp_path, f"{host}.iotrace", rows, files=files, paths=dict(enumerate(names, 1)), **clock)
        )
    groups = characterize_set(paths, grouping=Grouping("file", layers=("vfs",))).groups
    assert len({group.name for group in groups}) == 5
    assert {group.name for group in groups} >= {"/data", "/data (2)", "/data (3)"}


def test_a_directory_of_archives_is_a_set(tmp_path):
    directory = tmp_path / "set"
    directory.mkdir()
    rows = [read(BLOCK * at, BLOCK, 1000 + at) for at in range(40)]
    for number in range(3):
        clock = {"start_monotonic_ns": 1, "start_realtime_ns": DAY_NS + 1000 * number, "end_monotonic_ns": 2000}
        path = recording(tmp_path, f"{number}.iotrace", rows, files=[{"file": 1}], **clock)
        pack(path, directory / f"{number}.parquet", batch_records=16)
    merged = characterize_set([directory], parts=4)
    assert merged.layers["vfs"].parameters.unique_bytes == 3 * 40 * BLOCK
    assert merged.layers["vfs"].concurrency.threads == 3
    (tmp_path / "none").mkdir()
    with pytest.raises(FlextraceError, match=r"none has no \.parquet and no \.iotrace"):
        characterize_set([tmp_path / "none"])


CLOCK = {"start_monotonic_ns": 900, "start_realtime_ns": DAY_NS + 900, "end_monotonic_ns": 9000}


def imported(directory: Path, name: str, device: int, called: str, bad_lines: int = 0, **metadata: str) -> Path:
    """What is made of a block trace of another tool."""
    blocks = [{"op": 1, "bytes": BLOCK, "sector": 8 * at, "start_ns": 1000 + at, "device": device} for at in range(9)]
    facts = {"format": "msr", "path": name, **({"bad_lines": bad_lines} if bad_lines else {})}
    about = {"imported": facts, "devices": [{"device": f"0:{device}", "name": called}], **metadata}
    lost = {RecordKind.BLOCK: bad_lines} if bad_lines else {}
    return recording(directory, name, [], blocks=blocks, lost=lost, metadata=about, **CLOCK)


def test_what_one_recording_does_not_know_the_set_does_not(tmp_path):
    """Shares and times are null as they are of each trace alone, devices keep their names, and so does the advice."""
    paths = [
        imported(tmp_path, "a.iotrace", 1, "usr.0", bad_lines=2),
        imported(tmp_path, "b.iotrace", 1, "usr.0", bad_lines=3),
        imported(tmp_path, "c.iotrace", 2, "web.1", flags="known"),
        recording(tmp_path, "d.iotrace", [read(0, BLOCK, 1000)], metadata={"kernel": "6.18"}, **CLOCK),
    ]
    unknown = dict.fromkeys(("attributedFrac", "readaheadFrac", "metadataFrac", "fuaFrac"))
    result = characterize_set(paths[:3], grouping=Grouping("device", layers=("block",)), parts=4, piece_records=3)
    layer = result.as_document()["layers"]["block"]
    assert layer["extended"] == unknown
    assert layer["parameters"]["processNum"] == 3
    assert {group.name for group in result.groups} == {"usr.0", "usr.0 (2)", "web.1"}
    assert result.trace["lineage"]["imported"] == {"format": "msr", "bad_lines": 5}
    flags_known = characterize_set(paths[2:]).as_document()["layers"]["block"]["extended"]
    assert flags_known == dict.fromkeys(unknown, 0.0) | {"attributedFrac": None}


def test_a_set_with_arrivals_only_has_no_response_times(tmp_path):
    arrivals = imported(tmp_path, "a.iotrace", 1, "usr.0", durations="unknown")
    timed = recording(tmp_path, "b.iotrace", [read(0, BLOCK, 1000, 30)], **CLOCK)
    for paths in ([arrivals, timed], [timed, arrivals]):
        result = characterize_set(paths)
        assert not result.trace["durations_measured"]
        for layer in result.as_document()["layers"].values():
            assert layer["parameters"]["processNum"] is None
            assert set(layer["response_time"].values()) == {None}


def test_recordings_without_a_common_clock_are_refused(tmp_path):
    clock = {"start_monotonic_ns": 1, "start_realtime_ns": DAY_NS, "end_monotonic_ns": 9}
    timed = recording(tmp_path, "a.iotrace", [read(0, 1)], **clock)
    other = recording(tmp_path, "b.iotrace", [read(0, 1)])
    with pytest.raises(FlextraceError, match=r"b\.iotrace does not say when it was recorded"):
        characterize_set([timed, other])
    planned = recording(tmp_path, "c.iotrace", [read(0, 1)], flags=HeaderFlag.PLANNED, **clock)
    with pytest.raises(FlextraceError, match=r"c\.iotrace has not run yet"):
        characterize_set([timed, planned])
