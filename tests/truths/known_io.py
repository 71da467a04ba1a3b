# SPDX-License-Identifier: Apache-2.0
"""What a recording of tests/programs/known_io.c is to have: tests of the runs that a fixture `known_runs` gives."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import characterize
from characterize.layout import FileFlag, Fileop, IoFlag, IoOp, Source
from tests.truths.told import PROGRAMS

KNOWN_IO = PROGRAMS / "known_io"
FILEOPS = {"open", "close", "fsync", "fdatasync", "truncate", "rename", "unlink"}


def names_below(trace: characterize.Trace, directory: Path) -> dict[int, str]:
    """Files of a directory by id, named relative to it."""
    prefix = f"{directory}/"
    return {
        file: "." if path == str(directory) else path.removeprefix(prefix)
        for file, path in trace.paths.items()
        if path == str(directory) or path.startswith(prefix)
    }


def operations_of(trace: characterize.Trace, directory: Path) -> list[tuple]:
    """Data operations as known_io tells them: (kind, name, thread, offset, asked, result)."""
    names = names_below(trace, directory)
    io = trace.io[trace.io["file"].isin(list(names))]
    return [
        (IoOp(row.op).name.lower(), names[row.file], row.thread, row.offset, row.asked_bytes, row.result)
        for row in io.itertuples()
    ]


def told(output: str) -> list[tuple]:
    lines = [line.split() for line in output.splitlines()]
    return [(kind, name, *map(int, numbers)) for kind, name, *numbers in lines]


def without_thread(operations: list[tuple], names: set[str]) -> Counter:
    return Counter((kind, name, *rest) for kind, name, _, *rest in operations if name in names)


def test_every_data_operation_is_recorded_exactly(known_runs):
    for trace, expected, directory in known_runs:
        recorded = operations_of(trace, directory)
        assert not trace.header.lost
        by_some_thread = {name for _, name, thread, *_ in expected if thread == 0}
        assert by_some_thread == {"appended", "log"}
        exact = [row for row in expected if row[0] in {"read", "write"} and row[1] not in by_some_thread]
        assert Counter(row for row in recorded if row[1] not in by_some_thread) == Counter(exact)
        wanted = without_thread([row for row in expected if row[0] in {"read", "write"}], by_some_thread)
        assert without_thread(recorded, by_some_thread) == wanted


def test_every_file_operation_is_recorded(known_runs):
    for trace, expected, directory in known_runs:
        names = names_below(trace, directory)
        rows = trace.fileops[trace.fileops["file"].isin(list(names)) & (trace.fileops["result"] == 0)]
        recorded = Counter((Fileop(row.op).name.lower(), names[row.file]) for row in rows.itertuples())
        wanted = Counter((kind, name) for kind, name, *_ in expected if kind in FILEOPS and name != "?")
        # The directory is opened and closed too, for unlinkat and fsync.
        wanted.update({("open", "."): 1, ("close", "."): 1})
        assert recorded == wanted
        own = trace.fileops[trace.fileops["process"].isin(rows["process"])]
        failed = own[(own["op"] == Fileop.UNLINK) & (own["result"] < 0)]
        assert failed["result"].tolist() == [-2]


def test_a_rename_names_the_new_path_and_unlink_finds_it(known_runs):
    trace, _, directory = known_runs[0]
    files = trace.files.set_index("file")
    rename = trace.fileops[trace.fileops["op"] == Fileop.RENAME].iloc[0]
    assert trace.paths[rename["file"]] == f"{directory}/first"
    assert files.loc[rename["argument"], "path"] == f"{directory}/renamed"
    assert files.loc[rename["argument"], "flags"] & int(FileFlag.NEW_NAME)
    unlinked = trace.fileops[(trace.fileops["op"] == Fileop.UNLINK) & (trace.fileops["result"] == 0)]
    assert unlinked["file"].tolist()[0] == rename["file"]


def test_created_files_and_flags(known_runs):
    trace, _, directory = known_runs[0]
    names = names_below(trace, directory)
    created = trace.files[(trace.files["flags"] & int(FileFlag.CREATED)) != 0]
    inside = {names[file] for file in created["file"] if file in names}
    assert inside == {"plain", "created", "first", "second", "shared", "written", "appended", "log"}
    io = trace.io.assign(name=trace.io["file"].map(names))
    assert ((io.loc[io["name"] == "appended", "flags"] & int(IoFlag.APPEND)) != 0).all()
    plain = io[io["name"] == "plain"]
    assert ((plain["flags"] & int(IoFlag.DSYNC)) != 0).sum() == 1
    assert ((plain["flags"] & int(IoFlag.APPEND)) != 0).sum() == 1
    assert ((plain["flags"] & int(IoFlag.VECTORED)) != 0).sum() == 9


def test_records_of_a_thread_are_in_order_and_ids_unique(known_runs):
    for trace, _, _ in known_runs:
        io = trace.io
        assert io["id"].is_unique
        # A page fault that reads its page maps those around it before it ends: a record within a record.
        calls = io[io["source"] != Source.MMAP]
        assert (calls.groupby("thread")["start_ns"].diff().dropna() >= 0).all()
        assert trace.header.metadata["records_out_of_order"] == 0
