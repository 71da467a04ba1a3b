# SPDX-License-Identifier: Apache-2.0
"""Every data path of the kernel: programs that do prime numbers of operations, each compared with its trace.

The programs are tests/programs/*.c, the truth is what they told (tests/truths/told.py).
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections import Counter

import pytest

import characterize
from characterize.layout import FileFlag, Fileop, FileType, IoFlag, IoOp, RecordKind, Source
from tests.machines.kernel import has_tracepoint
from tests.machines.loop_file_system import IMAGE_BYTES, loop_file_system
from tests.truths.closure import assert_tasks_agree
from tests.truths.told import (
    MAPPED_KINDS,
    PROGRAMS,
    RECORDER,
    TOLD_FLAGS,
    Recorded,
    arguments_of,
    compare,
    parse,
    record,
    recorded,
    run_recorder,
    wait_for_recording,
)

PAGE_BYTES = 4096
HUGE_PAGES = 512  # of the largest folio that is mapped whole
FAULT_AROUND_BYTES = 65536  # the kernel's default of /sys/kernel/debug/fault_around_bytes
PATHS = ["splice", "aio", "io_uring", "mmap", "descriptors", "names", "flags", "compat", "tasks"]

tells_page_faults = pytest.mark.skipif(
    not has_tracepoint("mm_filemap_fault"),
    reason="this kernel has no tracepoint for reads of mapped files (before 6.11): a named limit",
)

pytestmark = [pytest.mark.records, pytest.mark.parallel]


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    """Runs by program, each recorded once, when the first test asks for it."""
    done: dict[str, Recorded] = {}

    def recording(program: str) -> Recorded:
        if program == "compat" and platform.machine() != "x86_64":
            pytest.skip("32-bit system calls of a 64-bit program exist on x86 only")
        if program not in done:
            done[program] = record(tmp_path_factory.mktemp(program) / program, program, *arguments_of(program))
        return done[program]

    return recording


@pytest.fixture(params=PATHS)
def run(request, recordings) -> Recorded:
    return recordings(request.param)


def test_every_data_operation_and_nothing_else(run):
    told = [row[:9] for row in run.told_data()]
    got = [row[:9] for row in run.data() if row.source != Source.MMAP]
    assert told or any(row.kind in MAPPED_KINDS for row in run.told) or run.told_file_operations()
    compare(told, got)


def test_every_file_operation_and_nothing_else(run):
    compare((row[:9] for row in run.told_file_operations()), (row[:9] for row in run.file_operations()))


def test_missed_bytes_of_every_read(run):
    """Where the program knows whether its data were in the page cache."""
    told = [row for row in run.told_data() if row.missed is not None]
    unknown = Counter(row[:7] for row in run.told_data() if row.missed is None)
    got = []
    for row in run.data():
        if row.source == Source.MMAP or row.kind != "read":
            continue
        if unknown[row[:7]]:
            unknown[row[:7]] -= 1
        else:
            got.append(row)
    compare(((*row[:7], row.missed) for row in told), ((*row[:7], row.missed) for row in got))


def test_order_times_and_ids(run):
    trace = run.trace
    both = [trace.arrays[RecordKind.IO], trace.arrays[RecordKind.FILEOP]]
    ids = [int(number) for array in both for number in array["id"]]
    assert len(set(ids)) == len(ids)
    assert 0 not in ids
    for array in both:
        assert (array["start_ns"] >= trace.header.start_monotonic_ns).all()
        assert (array["start_ns"] + array["duration_ns"] <= trace.header.end_monotonic_ns).all()
    # What runs beside its thread, or within a call, stands where it ended.
    in_order = trace.io[~trace.io["source"].isin([Source.AIO, Source.IO_URING, Source.MMAP])]
    for thread, group in in_order.groupby("thread"):
        assert (group["start_ns"].diff().dropna() >= 0).all(), f"thread {thread}"
    assert trace.header.metadata["records_out_of_order"] == 0


def test_totals_are_those_of_the_records(run):
    """The sums that the kernel side keeps beside the records, of a run in which no record was lost."""
    sums: Counter = Counter()
    for row in run.trace.io.itertuples():
        key = IoOp(row.op).name.lower(), Source(row.source).name.lower()
        sums[*key, "failed" if row.result <= 0 else "count"] += 1
        sums[*key, "bytes"] += max(row.result, 0)
    totals = {
        (op, source, what): number
        for op, sources in run.trace.header.metadata["totals"].items()
        for source, values in sources.items()
        for what, number in values.items()
    }
    assert {key: number for key, number in totals.items() if number} == dict(+sums)


@pytest.mark.parametrize("program", [program for program in PATHS if program != "compat"])
def test_the_kernel_has_counted_as_much(recordings, program):
    trace = recordings(program).trace
    assert_tasks_agree(trace)
    assert trace.header.metadata["closure"]["tasks"]["wchar"]["kernel"] > 0


@pytest.mark.parametrize("program", ["aio", "io_uring"])
def test_asynchronous_operations_overlap(recordings, program):
    """Those of a batch are in flight together, and processNum counts them."""
    run = recordings(program)
    names = {file for file, name in run.names.items() if name == "direct"}
    source = Source.AIO if program == "aio" else Source.IO_URING
    io = run.trace.io[run.trace.io["file"].isin(names) & (run.trace.io["source"] == source)].sort_values("start_ns")
    ends = (io["start_ns"] + io["duration_ns"]).cummax().shift()
    assert (io["start_ns"] < ends).sum() > len(io) // 2


def test_a_request_that_tells_nobody_of_its_success_ends_in_the_call_that_it_is_done_in(recordings):
    run = recordings("io_uring")
    ended_ns = [int(words[0]) for words in run.others["silent"]]
    closes = run.trace.fileops[(run.trace.fileops["op"] == Fileop.CLOSE)]
    closes = closes[(closes["source"] == Source.IO_URING) & (closes["file"].map(run.names) == "silent")]
    assert len(closes) == len(ended_ns)
    assert ((closes["start_ns"] + closes["duration_ns"]).to_numpy() <= ended_ns).all()


def test_files_that_requests_of_io_uring_make_were_not_there_before(recordings):
    run = recordings("io_uring")
    files = run.trace.files[run.trace.files["file"].isin([*run.names])]
    created = files.loc[files["type"] == FileType.REGULAR, "flags"] & int(FileFlag.CREATED) != 0
    assert created.any()
    assert created.all()


def test_asynchronous_operations_left_in_flight_by_their_process(tmp_path):
    """Each is recorded or, where no tracepoint tells its end (before 6.6), counted as lost."""
    (tmp_path / "left").mkdir()
    done = run_recorder(tmp_path / "t", PROGRAMS / "aio", tmp_path / "left", "left")
    told, _ = parse(done.stdout)
    trace = characterize.open(tmp_path / "t")
    lost = trace.header.lost.get(RecordKind.IO, 0)
    assert sum(row.source == Source.AIO for row in told) == (trace.io["source"] == Source.AIO).sum() + lost == 11
    assert done.returncode == (3 if lost else 0), done.stderr
    assert not lost or not has_tracepoint("iomap_dio_complete")


def pages(rows, kinds: set[str], name: str) -> set[int]:
    """Pages of a file that rows of these kinds touch."""
    return {
        page
        for row in rows
        if row.kind in kinds and row.name == name
        for page in range(row.offset // PAGE_BYTES, -(-(row.offset + row.result) // PAGE_BYTES))
    }


def around(touched: set[int]) -> set[int]:
    """Pages that the kernel may map when these are touched."""
    window = FAULT_AROUND_BYTES // PAGE_BYTES
    return {page // window * window + i for page in touched for i in range(window)}


@tells_page_faults
@pytest.mark.parametrize("name", ["cold-random", "cold-normal", "warm", "private"])
def test_every_touched_page_is_in_a_mapped_read(recordings, name):
    run = recordings("mmap")
    mapped = run.data({Source.MMAP})
    touched, read = pages(run.told, {"load"}, name), pages(mapped, {"read"}, name)
    assert len(touched) > 10
    assert touched <= read
    # The kernel says which folio it is about to map around a fault, not whether it did: a store to a private mapping of
    # large folios copies one page, and is told as the whole folio.
    if name != "private":
        assert read <= (touched if name == "cold-random" else around(touched))
    assert not pages(mapped, {"write"}, name)


@tells_page_faults
def test_the_first_touch_of_a_large_folio_is_in_a_mapped_read_unless_one_entry_maps_it(recordings):
    """A named limit: no tracepoint tells of a folio that one entry of 2 MiB maps; the kernel's own account does."""
    run = recordings("mmap")
    ((_, whole_bytes),) = run.others["whole"]
    read = pages(run.data({Source.MMAP}), {"read"}, "warm-large")
    touched = pages(run.told, {"load"}, "warm-large")
    unseen = {page // HUGE_PAGES for page in touched} - {page // HUGE_PAGES for page in read}
    assert len(unseen) * HUGE_PAGES * PAGE_BYTES == int(whole_bytes)


@tells_page_faults
def test_a_cold_page_is_read_once_and_missed(recordings):
    reads = [row for row in recordings("mmap").data({Source.MMAP}) if row.name == "cold-random"]
    assert Counter((row.offset, row.result, row.missed) for row in reads) == Counter(
        (i * 41 * PAGE_BYTES, PAGE_BYTES, PAGE_BYTES) for i in range(13)
    )


@pytest.mark.parametrize("name", ["stored", "stored-cold"])
def test_every_dirtied_page_is_in_a_mapped_write(recordings, name):
    run = recordings("mmap")
    mapped = run.data({Source.MMAP})
    stored, written = pages(run.told, {"store"}, name), pages(mapped, {"write"}, name)
    assert len(stored) > 10
    # A whole folio is dirtied at once; cold pages that are not read ahead have one of their own.
    assert stored <= written
    assert name == "stored" or written == stored
    rows = [row for row in mapped if row.name == name and row.kind == "write"]
    assert all(pages([row], {"write"}, name) & stored for row in rows)
    # A page that was written back in between is dirtied again by the next store.
    dirtied = Counter(page for row in rows for page in pages([row], {"write"}, name))
    stores = Counter(row.offset // PAGE_BYTES for row in run.told if row.kind == "store" and row.name == name)
    assert all(dirtied[page] >= count for page, count in stores.items())
    assert all(row.flags & IoFlag.ESTIMATED and row.asked == row.result for row in mapped)


def test_descriptors_that_were_open_before(tmp_path):
    directory = tmp_path / "early"
    directory.mkdir()
    for name, size in (("early", 103 * 101), ("early-appended", 61), ("early-closed", 7)):
        (directory / name).write_bytes(bytes(size))
    program = subprocess.Popen(
        [PROGRAMS / "descriptors", directory, "early"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    trace = tmp_path / "early.iotrace"
    try:
        opened = [program.stdout.readline() for _ in range(4)]
        assert opened[-1] == "ready\n"
        recorder = subprocess.Popen([RECORDER, "-o", trace, "-p", str(program.pid)], stderr=subprocess.PIPE, text=True)
        wait_for_recording(recorder.stderr)
        output, _ = program.communicate("go\n", timeout=120)
        assert recorder.wait(timeout=120) == 0
    finally:
        program.kill()
    run = recorded(directory, output, trace, recorder.stderr.read())
    compare(run.told_data(), run.data())
    compare(run.told_file_operations(), run.file_operations())
    sizes = {run.names[row.file]: row.size_bytes for row in run.trace.files.itertuples() if row.file in run.names}
    assert sizes == {"early": 103 * 101, "early-appended": 61, "early-closed": 7}
    # Known from the start of the recording, not only from the first operation.
    first = run.trace.io["start_ns"].min()
    announced = run.trace.files[run.trace.files["file"].isin(list(run.names))]
    assert (announced["time_ns"] < first).all()
    # The kernel charges a call at its end: those that run at the attachment, here a read of 3 bytes in one process and
    # of 1 byte in the other, are known to it alone.
    tasks = run.trace.header.metadata["closure"]["tasks"]
    missing = {"rchar": 3 + 1, "wchar": 0, "syscr": 2, "syscw": 0, "write_bytes": 0}
    assert {name: tasks[name]["kernel"] - tasks[name]["seen"] for name in missing} == missing


def test_identity_survives_names(recordings):
    run = recordings("descriptors")
    files = run.trace.files.assign(name=run.trace.files["file"].map(run.names))
    real = files[(files["name"].notna()) & ((files["flags"] & int(FileFlag.NEW_NAME)) == 0)]
    counts = Counter(real["name"])
    # A file that was made again under its old name is another one; a hard link is the same one.
    assert counts["deleted"] == 2
    assert counts["linked"] == counts["duplicated"] == 1
    assert counts["second-name"] == 0
    without_name = real[real["name"].str.startswith("#")]
    assert len(without_name) == 1
    assert (without_name["flags"] & int(FileFlag.CREATED)).all()


@pytest.mark.parametrize("filtered", [False, True])
def test_files_of_subvolumes_are_told_apart(tmp_path, filtered):
    """A snapshot has the files of its subvolume, under the same numbers, and a subvolume may have those of another."""
    if not shutil.which("btrfs"):
        pytest.skip("btrfs (btrfs-progs) is not installed")
    with loop_file_system("btrfs", tmp_path) as system:
        volume, other, snapshot = places = [system.place / name for name in ("volume", "other", "snapshot")]
        for made in (["create", volume], ["create", other], ["snapshot", volume, snapshot]):
            subprocess.run(["btrfs", "subvolume", *made], check=True, capture_output=True)
            (made[-1] / "file").write_bytes(bytes(3))
        files = [place / "file" for place in places]
        stats = {str(file): file.stat() for file in files}
        assert len({it.st_ino for it in stats.values()}) == 1
        script = ";".join(f"printf {'x' * bytes_} >> {file}" for file, bytes_ in zip(files, (11, 13, 17), strict=True))
        options = ("--device", system.disk.path) if filtered else ()
        done = run_recorder(tmp_path / "t", "sh", "-c", script, options=options)
        assert done.returncode == 0, done.stderr
    trace = characterize.open(tmp_path / "t")
    told = trace.files[trace.files["path"].isin([*stats])].set_index("path")
    devices = {path: os.major(it.st_dev) << 20 | os.minor(it.st_dev) for path, it in stats.items()}
    assert told["device"].to_dict() == devices
    assert told["inode"].to_dict() == {path: it.st_ino for path, it in stats.items()}
    moved = {path: trace.io.loc[trace.io["file"] == file, "result"].sum() for path, file in told["file"].items()}
    assert list(moved.values()) == [11, 13, 17]
    assert list(moved) == [str(file) for file in files]


def test_tasks_of_the_tree(recordings):
    run = recordings("tasks")
    told = {(*map(int, words[:3]), words[3]) for words in run.others["task"]}
    # A thread that execs is announced again with its new name.
    got = {
        (int(row["thread"]), int(row["process"]), int(row["parent_process"]), row["comm"].decode())
        for row in run.trace.arrays[RecordKind.TASK]
    }
    assert told <= got
    # Page faults of a program's text happen in all threads, even in those that do nothing that was told.
    io = run.trace.io
    assert {row[0] for row in told} >= set(io.loc[io["source"] != Source.MMAP, "thread"])
    assert set(io["thread"]) <= {row[0] for row in got}


def test_32_bit_calls_are_counted_and_named(recordings):
    run = recordings("compat")
    metadata = run.trace.header.metadata
    calls = int(run.others["compat"][0][0])
    assert calls == 25 + 6  # of x32
    assert skips(run)["compat_call"] == calls
    assert re.search(rf"\b{calls}\b.*32-bit", run.stderr), run.stderr
    assert not [row for row in run.data({Source.MMAP}) if row.name == "clean"]
    assert metadata["exit_status"] == 0


def skips(run: Recorded) -> dict[str, int]:
    return run.trace.header.metadata["skips"]


def test_what_is_no_file_is_counted(tmp_path):
    few, many = (record(tmp_path / f"rounds{rounds}", "not_files", str(rounds)) for rounds in (3, 14))
    for run, rounds in ((few, 3), (many, 14)):
        compare((row[:9] for row in run.told_data()), (row[:9] for row in run.data()))
        assert len(run.data()) == rounds
    for kind in ("not_a_file", "pseudo_file"):
        in_a_round = int(few.others[kind][0][0])
        assert skips(many)[kind] - skips(few)[kind] == 11 * in_a_round


def test_the_trace_is_read_back_whole(run):
    """The counts of the header are those of the records, and no path is missing."""
    trace = characterize.open(run.trace.path)
    assert not trace.warnings
    assert all(trace.paths.get(int(file)) for file in trace.io["file"])


def test_a_block_device_is_a_file_too(tmp_path):
    with loop_file_system("ext4", tmp_path) as system:
        trace_path = tmp_path / "device.iotrace"
        dd = ["dd", f"if={system.disk.path}", "of=/dev/null", "bs=8192", "count=61", "skip=3", "iflag=direct"]
        done = run_recorder(trace_path, *dd)
        assert done.returncode == 0, done.stderr
    trace = characterize.open(trace_path)
    file = trace.files[trace.files["path"] == system.disk.path].iloc[0]
    assert (file["type"], file["device"], file["size_bytes"]) == (
        FileType.BLOCK_DEVICE,
        system.disk.number,
        IMAGE_BYTES,
    )
    io = trace.io[trace.io["file"] == file["file"]]
    flags = io["flags"] & TOLD_FLAGS
    got = zip(io["op"], io["offset"], io["asked_bytes"], io["result"], flags, io["missed_bytes"], strict=True)
    compare([(IoOp.READ, (3 + i) * 8192, 8192, 8192, IoFlag.DIRECT, 8192) for i in range(61)], got)
