# SPDX-License-Identifier: Apache-2.0
"""What a recording says of the machine and of itself: residency, devices, gaps, its own writes."""

from __future__ import annotations

import json
import mmap
import os
import subprocess
from pathlib import Path

import pytest

import characterize
from characterize.layout import BlockFlag, IoFlag, IoOp, RecordKind
from tests.machines.block_device import loop_device
from tests.machines.loop_file_system import loop_file_system
from tests.machines.own_place import own_place
from tests.runs import ordinary_user
from tests.truths.page_cache import cache_only, resident_pages
from tests.truths.told import ROOT, run_recorder

PAGE = mmap.PAGESIZE
ATTEMPTS = 5

pytestmark = pytest.mark.records


def partly_cached(path: Path, size: int, ranges: list[tuple[int, int]]) -> None:
    """A new file, of which these pages ``(first, count)`` are cached."""
    path.write_bytes(os.urandom(size))
    cache_only(path, [(PAGE * first, PAGE * (first + count)) for first, count in ranges])


def recorded_pages(trace: characterize.Trace, path: Path, pages: int) -> list[bool]:
    file = next(file for file, name in trace.paths.items() if name == str(path))
    rows = trace.resident[trace.resident["file"] == file]
    resident = [False] * pages
    for row in rows.itertuples():
        assert row.offset % PAGE == 0
        for page in range(row.offset // PAGE, (row.offset + row.bytes + PAGE - 1) // PAGE):
            assert not resident[page]
            resident[page] = True
    return resident


def test_resident_ranges_are_those_of_mincore(tmp_path):
    size = 3000 * PAGE + 100  # more than two chunks of the recorder, and a page that is not full
    cases = {
        "some": [(0, 1), (3, 5), (1020, 10), (2999, 2)],
        "none": [],
        "all": [(0, 3001)],
        "tail": [(3000, 1)],
        "comb": [(page, 1) for page in range(0, 3000, 3)],
    }
    # Opens each of them, and reads nothing.
    script = " ".join(f"exec 3<{tmp_path}/{name};" for name in cases)
    for _ in range(ATTEMPTS):
        for name, ranges in cases.items():
            partly_cached(tmp_path / name, size, ranges)
        before = {name: resident_pages(tmp_path / name) for name in cases}
        done = run_recorder(tmp_path / "t", "sh", "-c", f"{script} sleep 0.2", options=("--force",))
        after = {name: resident_pages(tmp_path / name) for name in cases}
        if before == after and sum(before["all"]) == 3001:
            break
    else:
        pytest.skip("somebody else drops this machine's page cache all the time")
    assert done.returncode == 0, done.stderr
    trace = characterize.open(tmp_path / "t")
    for name, pages in before.items():
        assert recorded_pages(trace, tmp_path / name, len(pages)) == pages, name
    assert sum(before["some"]) == 18
    assert sum(before["comb"]) == 1000
    whole = trace.resident[trace.resident["bytes"] == size]
    assert len(whole) == 1  # "all" is one range that ends where the file does


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs"])
def test_resident_ranges_on_any_file_system(tmp_path, kind):
    """A btrfs gives its files another device number than its super block has."""
    with loop_file_system(kind, tmp_path) as system:
        file = system.place / "some"
        for _ in range(ATTEMPTS):
            partly_cached(file, 300 * PAGE, [(3, 5), (200, 1)])
            before = resident_pages(file)
            done = run_recorder(tmp_path / "t", "sh", "-c", f"exec 3<{file}; sleep 0.2", options=("--force",))
            if before == resident_pages(file):
                break
        else:
            pytest.skip("somebody else drops this machine's page cache all the time")
        assert done.returncode == 0, done.stderr
        assert sum(before) >= 6
        assert recorded_pages(characterize.open(tmp_path / "t"), file, len(before)) == before


@pytest.mark.parametrize("more", [(), ("fowner",)])
def test_ranges_that_the_kernel_hides_from_a_user_are_left_out(more):
    """Of a file that is neither owned nor writable, mincore claims that all of it is cached."""
    names = ("owned", "of_root")
    with ordinary_user.directory_of_user() as place:
        for _ in range(ATTEMPTS):
            for name in names:
                partly_cached(place / name, 64 * PAGE, [(3, 5)])
                (place / name).chmod(0o644)
            os.chown(place / "owned", ordinary_user.NUMBER, ordinary_user.NUMBER)
            seen = {name: resident_pages(place / name) for name in names}
            done = run_recorder(
                *(place / "t", "sh", "-c", "exec 3<owned; exec 3<of_root; sleep 0.2"),
                options=("--force",),
                before=ordinary_user.as_user(*ordinary_user.RECORDING, *more),
                cwd=place,
            )
            if seen == {name: resident_pages(place / name) for name in names}:
                break
        else:
            pytest.skip("somebody else drops this machine's page cache all the time")
        assert done.returncode == 0, done.stderr
        assert sum(seen["owned"]) >= 5
        trace = characterize.open(place / "t")
        assert recorded_pages(trace, place / "owned", 64) == seen["owned"]
        assert recorded_pages(trace, place / "of_root", 64) == (seen["of_root"] if more else [False] * 64)
        counted = trace.files.set_index("path")["resident_bytes"]
        assert [counted[f"{place}/{name}"] / PAGE for name in seen] == [sum(pages) for pages in seen.values()]


def test_too_many_ranges_are_joined(tmp_path):
    pages = 2 * 9000
    partly_cached(tmp_path / "comb", pages * PAGE, [(page, 1) for page in range(0, pages, 2)])
    truth = resident_pages(tmp_path / "comb")
    assert sum(truth) > 4096
    done = run_recorder(tmp_path / "t", "sh", "-c", f"exec 3<{tmp_path}/comb; sleep 0.3")
    assert done.returncode == 0, done.stderr
    trace = characterize.open(tmp_path / "t")
    recorded = recorded_pages(trace, tmp_path / "comb", pages)
    assert 0 < (trace.resident["bytes"] > 0).sum() <= 4096 + len(trace.files)
    # Joining adds gaps and takes nothing away, but for what left the cache in the meantime.
    truth = [before and now for before, now in zip(truth, resident_pages(tmp_path / "comb"), strict=True)]
    assert [page for page in range(pages) if truth[page] and not recorded[page]] == []


def test_a_file_of_another_root_is_found(tmp_path):
    """The path is that of the chroot, where the recorder's own file system has nothing."""
    for place in ("bin", "lib", "lib64", "usr"):
        (tmp_path / place).mkdir()
    partly_cached(tmp_path / "inside", 10 * PAGE, [(2, 3)])
    binds = [place for place in ("bin", "lib", "lib64", "usr") if Path(f"/{place}").exists()]
    script = " && ".join(f"mount --bind /{place} {tmp_path}/{place}" for place in binds)
    command = f"{script} && exec chroot {tmp_path} /bin/sh -c 'exec 3</inside; sleep 0.2'"
    done = run_recorder(tmp_path / "t", "unshare", "--mount", "sh", "-c", command)
    assert done.returncode == 0, done.stderr
    pages = recorded_pages(characterize.open(tmp_path / "t"), Path("/inside"), 10)
    assert [page for page, resident in enumerate(pages) if resident] == [2, 3, 4]


def test_devices_that_pass_data_on_are_marked(tmp_path):
    below = tmp_path.stat().st_dev
    if not Path(f"/sys/dev/block/{os.major(below)}:{os.minor(below)}").exists():
        pytest.skip("the temporary directory is not on a block device")
    with (
        loop_file_system("ext4", tmp_path) as system,
        own_place() as memory,
        loop_device(memory / "disk", 16 << 20) as alone,
    ):
        script = (
            f"dd if=/dev/zero of={system.place}/file bs=4k count=13 oflag=direct;"
            f"dd if=/dev/zero of={alone.path} bs=4k count=17 oflag=direct"
        )
        done = run_recorder(tmp_path / "t", "sh", "-c", script)
        assert done.returncode == 0, done.stderr
        stacked, plain = system.disk.path, alone.path
        numbers = {name: os.stat(name).st_rdev for name in (stacked, plain)}
    trace = characterize.open(tmp_path / "t")
    described = {device["name"]: device for device in trace.header.metadata["devices"]}
    for name, expected in ((stacked, True), (plain, False)):
        blocks = trace.blocks[trace.blocks["device"] == os.major(numbers[name]) << 20 | os.minor(numbers[name])]
        assert len(blocks)
        assert (((blocks["flags"] & BlockFlag.STACKED.value) != 0) == expected).all()
        assert described[Path(name).name]["stacked"] == expected
    assert described[Path(stacked).name]["backing"] == f"{os.major(below)}:{os.minor(below)}"
    disks = json.loads(subprocess.run(["lsblk", "-J", "-l"], check=True, capture_output=True, text=True).stdout)
    for row in disks["blockdevices"]:
        device = described.get(row["name"])
        assert device is None or ("parent" in device) == (row["type"] == "part")


def test_gaps_lie_in_time_where_the_losses_were(tmp_path):
    # Two bursts, of more writers than there are processors for them and the recorder, with a pause in between: no gap
    # covers the pause.
    writers = 2 * len(os.sched_getaffinity(0))
    writer = f"dd if=/dev/zero of={tmp_path}/$number bs=7 count=60013"
    burst = f"for number in $(seq {writers}); do {writer} & done; wait"
    done = run_recorder(
        tmp_path / "t", "sh", "-c", f"{burst}; sleep 0.5; {burst}", options=("--ring-bytes", "32K", "--layer", "vfs")
    )
    trace = characterize.open(tmp_path / "t")
    gaps = trace.gaps[trace.gaps["lost_kind"] == RecordKind.IO]
    if gaps["lost_count"].sum() < 1000:
        pytest.skip("even the smallest ring lost nothing: the drain kept up")
    assert done.returncode == 3
    assert done.stderr.count("RECORDS ARE BEING LOST") == 1
    assert len(gaps) > 4
    assert (gaps["duration_ns"] < 300_000_000).all()
    # What was written and what was lost is what happened, whatever was lost.
    written = trace.header.metadata["totals"]["write"]["syscall"]
    assert written["count"] >= 2 * writers * 60013
    recorded = ((trace.io["op"] == IoOp.WRITE) & (trace.io["asked_bytes"] == 7)).sum()
    assert recorded + gaps["lost_count"].sum() >= 2 * writers * 60013


def test_the_trace_leaves_the_page_cache(tmp_path):
    done = run_recorder(
        tmp_path / "t", "dd", "if=/dev/zero", f"of={tmp_path}/file", "bs=1", "count=500000", options=("--layer", "vfs")
    )
    assert done.returncode in (0, 3), done.stderr
    trace_bytes = (tmp_path / "t").stat().st_size
    if trace_bytes < 20 << 20:
        pytest.skip("too much was lost")
    assert sum(resident_pages(tmp_path / "t")) * PAGE < 12 << 20
    # As large writes that begin at multiples of their size.
    own = characterize.open(tmp_path / "t").header
    assert own.count[RecordKind.IO] * 64 <= trace_bytes


def test_the_recorder_writes_megabytes(tmp_path):
    program = ["dd", "if=/dev/zero", f"of={tmp_path}/file", "bs=1", "count=100000"]
    recorder = [str(ROOT / "build" / "flextrace-record"), "-o", str(tmp_path / "t"), "--layer", "vfs", "--", *program]
    subprocess.run(
        ["strace", "-e", "trace=pwrite64", "-o", tmp_path / "calls", *recorder], check=False, capture_output=True
    )
    lines = [line for line in (tmp_path / "calls").read_text().splitlines() if line.startswith("pwrite64")]
    writes = [tuple(map(int, line.split(") =")[0].rsplit(", ", 2)[1:])) for line in lines]
    records = [(size, offset) for size, offset in writes if size > 4096]
    assert len(records) > 4
    middle = sorted(records, key=lambda write: write[1])[1:-1]
    assert all(size == 1 << 20 and offset % (1 << 20) == 0 for size, offset in middle)


def test_direct_reads_that_go_through_the_page_cache_miss_what_others_would(tmp_path):
    """btrfs reads into the cache what it has compressed; and of holes no device knows."""
    size, passes = 1 << 20, 3
    with loop_file_system("btrfs", tmp_path) as system:
        compressed, hole = system.place / "compressed", system.place / "hole"
        compressed.touch()
        subprocess.run(["chattr", "+c", compressed], check=True)
        compressed.write_bytes(b"abcdefgh" * (size // 8))
        cache_only(compressed, [])
        hole.touch()
        os.truncate(hole, size)
        read = f"for pass in $(seq {passes}); do dd if=$file of=/dev/null bs=64k iflag=direct; done"
        done = run_recorder(tmp_path / "t", "sh", "-ec", f"for file in {compressed} {hole}; do {read}; done")
    assert done.returncode == 0, done.stderr
    trace = characterize.open(tmp_path / "t")
    for path, missed in ((compressed, [size, 0, 0]), (hole, [0, 0, 0])):
        file = trace.files.loc[trace.files["path"] == str(path), "file"].iloc[0]
        reads = trace.io[(trace.io["file"] == file) & (trace.io["flags"] & int(IoFlag.DIRECT) != 0)]
        assert reads["result"].sum() == passes * size
        assert trace.block_data.loc[trace.block_data["file"] == file, "bytes"].sum() < size
        assert reads.groupby("process", sort=False)["missed_bytes"].sum().tolist() == missed
