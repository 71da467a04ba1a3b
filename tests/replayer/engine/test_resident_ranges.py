# SPDX-License-Identifier: Apache-2.0
"""The page cache at the start of a replay: the recorded ranges and nothing else, compared by mincore here."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import characterize
from characterize.layout import Fileop
from tests.runs.running_replay import own_process, wait_for_calls
from tests.traces.made_trace import made_trace
from tests.truths.page_cache import PAGE_BYTES, cache_only, cached_ranges
from tests.truths.straced import ENGINE, needs_engine, needs_strace, op
from tests.truths.told import RECORDER

pytestmark = needs_engine

ATTEMPTS = 5  # others may drop this machine's page cache at any time
PAGES = 4099  # 16 MiB and a bit
SIZE = PAGES * PAGE_BYTES - 1234


@pytest.fixture(autouse=True)
def _disk(tmp_path):
    file_system = subprocess.run(["stat", "-f", "-c", "%T", tmp_path], capture_output=True, text=True, check=True)
    if file_system.stdout.strip() == "tmpfs":
        pytest.skip("a tmpfs has no place but the page cache")


@pytest.fixture
def engine(tmp_path):
    """Runs the engine on a trace and keeps the image, again while the cache is not as expected by file id.

    Asserts that it is in the end; returns the document.
    """

    def run(trace, expected, *options):
        path = trace
        if not isinstance(trace, os.PathLike):
            path = characterize.write(trace, tmp_path / "t.iotrace", force=True)
        image = tmp_path / "image"
        command = [ENGINE, path, f"--directory={image}", "--keep-image", *options]
        for _ in range(ATTEMPTS):
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
            assert done.returncode == 0, done.stderr
            document = json.loads(done.stdout)
            cached = {file: cached_ranges(image / f"f{file:08}") for file in expected}
            if (
                cached == expected
                and document["image"]["cache_achieved_bytes"] == document["image"]["cache_wanted_bytes"]
            ):
                break
        assert cached == expected
        return document

    return run


def harmless(files, resident):
    """A trace whose operations (POSIX_FADV_NORMAL) move nothing."""
    fileops = [op(Fileop.FADVISE, 1 + at, file=row["file"]) for at, row in enumerate(files)]
    return made_trace(fileops=fileops, files=files, resident=resident)


def pages(*ranges):
    return [(first * PAGE_BYTES, min(last * PAGE_BYTES, SIZE)) for first, last in ranges]


def rows(file, ranges):
    return [{"file": file, "offset": offset, "bytes": end - offset} for offset, end in ranges]


def total(ranges):
    return sum(end - offset for offset, end in ranges)


@pytest.mark.parametrize(
    "wanted",
    [
        pages((0, 1)),
        pages((1, 2), (3, 5), (4098, 4099)),  # the last page is not a whole one
        pages((0, PAGES)),
        pages((7, 4099)),
        pages((0, 4098)),
        pages((100, 100 + 2048)),
        pages(*((at, at + 1) for at in range(0, PAGES, 2))),
    ],
)
def test_the_recorded_ranges_and_nothing_else_are_cached(engine, wanted):
    file = {"file": 1, "size_bytes": SIZE, "resident_bytes": total(wanted)}
    document = engine(harmless([file], rows(1, wanted)), {1: wanted})
    image = document["image"]
    assert image["cache_wanted_ranges"] == len(wanted)
    expected = total(wanted)
    names = ("cache_wanted_bytes", "cache_achieved_bytes", "cache_resident_bytes")
    assert [image[name] for name in names] == [expected] * 3
    assert document["warnings"] == []


def test_ranges_at_random_of_several_files(engine):
    random = np.random.default_rng(11)
    wanted = {}
    for file in range(1, 6):
        edges = np.sort(random.choice(PAGES, 2 * int(random.integers(1, 60)), replace=False)).reshape(-1, 2)
        wanted[file] = pages(*edges.tolist())
    files = [{"file": file, "size_bytes": SIZE, "resident_bytes": total(wanted[file])} for file in wanted]
    resident = [row for file in wanted for row in rows(file, wanted[file])]
    order = random.permutation(len(resident))
    document = engine(harmless(files, [resident[at] for at in order]), wanted)
    assert document["image"]["cache_achieved_bytes"] == sum(map(total, wanted.values()))


def test_other_states_by_choice(engine):
    wanted = pages((5, 9))
    trace = harmless([{"file": 1, "size_bytes": SIZE, "resident_bytes": total(wanted)}], rows(1, wanted))
    states = (("warm", pages((0, PAGES))), ("cold", []), ("recorded", wanted), ("keep", wanted), ("keep", wanted))
    for at, (choice, expected) in enumerate(states):
        # With the image laid out again, which is complete, and without.
        phase = ["--phase=run"] if at == len(states) - 1 else []
        document = engine(trace, {1: expected}, f"--cache={choice}", *phase)
        assert document["cache"] == choice
        assert document["image"]["cache_resident_bytes"] == total(expected)
        assert document["image"]["cache_wanted_bytes"] == (0 if choice == "keep" else total(expected))


def test_keep_is_of_what_was_there_and_not_of_what_is_laid_out(engine, tmp_path):
    """The file grows by more than is written out at one time (64 MiB)."""
    cached = pages((5, 9), (1000, 1001))
    size, longer = PAGES * PAGE_BYTES, (96 << 20) + 5
    engine(harmless([{"file": 1, "size_bytes": size}], []), {}, "--phase=prepare")
    cache_only(tmp_path / "image" / "f00000001", cached)
    document = engine(harmless([{"file": 1, "size_bytes": longer}], []), {1: cached}, "--cache=keep")
    assert document["image"]["built_bytes"] == longer - size
    assert document["image"]["cache_resident_bytes"] == total(cached)


def wait_for(condition, timeout_s=60):
    """Whether it was true once: it may not be any more."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


@pytest.mark.parametrize("choice", ["recorded", "warm", "keep"])
def test_every_pass_begins_with_the_same_pages(tmp_path, choice):
    """File 2 is shorter in each pass, so that each is undone; nothing that a pass does changes the cache of file 1."""
    wanted = pages((3, 5), (100, 900))
    gap_ns = 300_000_000
    fileops = [op(Fileop.TRUNCATE, 1, file=2, argument=100), op(Fileop.FADVISE, gap_ns)]
    files = [{"file": 1, "size_bytes": SIZE, "resident_bytes": total(wanted)}, {"file": 2, "size_bytes": 500}]
    made = made_trace(fileops=fileops, files=files, resident=rows(1, wanted))
    path = characterize.write(made, tmp_path / "t.iotrace")
    command = [ENGINE, path, f"--directory={tmp_path / 'image'}", "--keep-image", f"--cache={choice}"]
    first, second = tmp_path / "image" / "f00000001", tmp_path / "image" / "f00000002"
    expected = pages((0, PAGES)) if choice == "warm" else wanted
    for _ in range(ATTEMPTS):
        subprocess.run([*command, "--phase=prepare"], check=True, capture_output=True)
        cache_only(first, wanted)
        if second_pass_begins_with([*command, "--phase=run", "--loop", "--timing=recorded"], first, second, expected):
            break
    else:
        pytest.fail(f"never with the pages wanted, in {ATTEMPTS} runs; at last {cached_ranges(first)[:9]}")


def second_pass_begins_with(running, first, second, expected):
    """Whether ``first`` has the ``expected`` ranges cached once the second pass found ``second`` as the first did."""
    with own_process(running) as process:
        assert wait_for(lambda: second.stat().st_size == 100)
        assert wait_for(lambda: second.stat().st_size == 500)
        as_expected = wait_for(lambda: cached_ranges(first) == expected, timeout_s=5)
        process.send_signal(signal.SIGINT)
        out = process.communicate(timeout=60)[0]
    assert json.loads(out)["stopped"] == "signal"
    return as_expected


def test_without_ranges_the_first_bytes_are_taken(engine):
    """Altered traces have none: places and sizes of files changed."""
    file = {"file": 1, "size_bytes": SIZE, "resident_bytes": 10 * PAGE_BYTES}
    document = engine(harmless([file], []), {1: pages((0, 10))})
    assert document["image"]["cache_wanted_ranges"] == 1


def test_overlapping_foreign_and_impossible_ranges(engine):
    """Damaged and merged traces: counted once, cut at the end of the file, left out where there is no file."""
    resident = [
        *rows(1, [(0, 3 * PAGE_BYTES), (2 * PAGE_BYTES, 5 * PAGE_BYTES), (5 * PAGE_BYTES, 6 * PAGE_BYTES)]),
        {"file": 1, "offset": SIZE - 100, "bytes": 2**63},
        {"file": 1, "offset": 2**63, "bytes": 2**63},
        {"file": 2**31 + 7, "offset": 0, "bytes": 4096},
        {"file": 99, "offset": 0, "bytes": 4096},
    ]
    file = {"file": 1, "size_bytes": SIZE, "resident_bytes": 7 * PAGE_BYTES}
    document = engine(harmless([file], resident), {1: pages((0, 6), (PAGES - 1, PAGES))})
    assert document["image"]["cache_wanted_ranges"] == 2
    assert document["image"]["cache_wanted_bytes"] == 6 * PAGE_BYTES + 100


PROGRAM = """
import os, sys
descriptor = os.open(sys.argv[1], os.O_RDONLY)
os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
os.pread(descriptor, 1, int(sys.argv[2]))  # of a cached page: changes nothing
"""


@pytest.mark.records
def test_what_a_recording_found_cached_is_cached_again(engine, tmp_path):
    data = tmp_path / "data"
    data.write_bytes(np.random.default_rng(5).bytes(SIZE))
    wanted = pages((3, 4), (64, 1000), (2048, 2049), (4090, 4099))
    trace = tmp_path / "recorded.iotrace"
    command = [sys.executable, "-c", PROGRAM, data, str(3 * PAGE_BYTES)]
    recorder = [RECORDER, "-o", trace, "--force", "--path", tmp_path, "--", *command]
    for _ in range(ATTEMPTS):
        cache_only(data, wanted)
        done = subprocess.run(recorder, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
        if cached_ranges(data) == wanted:
            break
    else:
        pytest.skip("somebody else drops this machine's page cache all the time")
    recorded = characterize.open(trace)
    (file,) = [file for file, path in recorded.paths.items() if path == str(data)]
    document = engine(trace, {file: wanted})
    assert document["image"]["cache_achieved_bytes"] == total(wanted)


@needs_strace
@pytest.mark.parametrize("kept", [True, False])
def test_an_interrupt_while_the_cache_is_filled_ends_it_with_a_result(tmp_path, kept):
    """strace makes the filling slow enough to be met: 10 ms for every 128 KiB of 48 MiB that is in two ranges."""
    size = 48 << 20
    ranges = [(0, size // 2 - PAGE_BYTES), (size // 2, size)]
    file = {"file": 1, "size_bytes": size, "resident_bytes": total(ranges)}
    trace = characterize.write(harmless([file], rows(1, ranges)), tmp_path / "t.iotrace")
    image, log = tmp_path / "image", tmp_path / "log"
    command = [ENGINE, trace, f"--directory={image}", *(["--keep-image"] * kept)]
    slow = ["strace", "-f", "-o", log, "-e", "trace=readahead", "-e", "inject=readahead:delay_enter=10000"]
    with own_process([*slow, *command]) as process:
        wait_for_calls(log, "readahead")
        os.kill(int(log.read_text().split()[0]), signal.SIGINT)
        out = process.communicate(timeout=100)[0]
    document = json.loads(out)
    assert document["stopped"] == "signal"
    assert document["skipped_reasons"] == {"stopped": 1}
    assert document["image"]["cache_achieved_bytes"] < total(ranges)
    assert image.exists() == kept
    if kept:
        assert (image / "f00000001").stat().st_size == size
