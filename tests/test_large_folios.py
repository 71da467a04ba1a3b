# SPDX-License-Identifier: Apache-2.0
"""Which share of a file's cached pages is in large folios: as recorded, and as a replay finds it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import characterize
from characterize.layout import LARGE_FOLIOS_ALL, LARGE_FOLIOS_NONE, Fileop
from tests.made_trace import made_trace
from tests.page_cache import PAGE_BYTES, cache_only, cached_ranges, large_folio_share
from tests.straced import ENGINE, needs_engine, op
from tests.told import RECORDER, run_recorder

MIB = 1 << 20
SIZE = 8 * MIB
LARGE, FEW = 0.9, 0.1


def written(path, request_bytes, size=SIZE):
    """A new file, cached as its writes have left it."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        for _ in range(0, size, request_bytes):
            os.write(descriptor, bytes(request_bytes))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return path


@pytest.fixture(autouse=True)
def _root_on_large_folios(tmp_path):
    if os.geteuid():
        pytest.skip("only root is told the frames of pages")
    if large_folio_share(written(tmp_path / "trial", MIB)) < LARGE:
        pytest.skip("this file system has no large folios")
    if large_folio_share(written(tmp_path / "trial-small", PAGE_BYTES)) > FEW:
        pytest.skip("this file system puts small writes into large folios")


def opens(*paths):
    """A program that opens files and moves nothing of them."""
    code = "import os, sys\nfor path in sys.argv[1:]: os.posix_fadvise(os.open(path, os.O_RDONLY), 0, 0, 0)"
    return [sys.executable, "-c", code, *map(str, paths)]


def share_of(code):
    assert code, "not known"
    return (code - LARGE_FOLIOS_NONE) / (LARGE_FOLIOS_ALL - LARGE_FOLIOS_NONE)


needs_recorder = pytest.mark.skipif(not RECORDER.exists(), reason="the recorder is not built")


@needs_recorder
def test_recorded_as_the_frames_of_its_pages_say(tmp_path):
    files = {
        name: written(tmp_path / name, request_bytes)
        for name, request_bytes in (("large", MIB), ("small", PAGE_BYTES), ("mixed", MIB), ("partly", PAGE_BYTES))
    }
    written(files["mixed"], PAGE_BYTES)  # appends as much again
    written(files["partly"], MIB)
    written(tmp_path / "page", 100, 100)
    cached = [(0, 4 * MIB), (7 * MIB, 7 * MIB + 5 * PAGE_BYTES)]
    cache_only(files["partly"], cached)
    cached = cached_ranges(files["partly"])
    expected = {name: large_folio_share(path, cached if name == "partly" else None) for name, path in files.items()}
    expected["page"] = 0.0
    assert expected["large"] > LARGE
    assert 0.3 < expected["mixed"] < 0.7

    done = run_recorder(tmp_path / "t.iotrace", *opens(*files.values(), tmp_path / "page"))
    assert done.returncode == 0, done.stderr
    trace = characterize.open(tmp_path / "t.iotrace")
    paths = trace.files.set_index("file")["path"]
    ranges = trace.resident.assign(name=trace.resident["file"].map(paths).map(os.path.basename))
    told = ranges[ranges["name"].isin(expected)].groupby("name")["large_folios"]
    assert (told.min() == told.max()).all(), "of a file, not of a range"
    # By 32 pages: each is one part in 32 of it.
    assert told.max().map(share_of).to_dict() == pytest.approx(expected, abs=2 / 32)


@needs_recorder
def test_nothing_is_read_for_it(tmp_path):
    """What is looked at is mapped for a moment: of a file of which little is cached no more is so afterwards."""
    path = written(tmp_path / "sparse", PAGE_BYTES)
    cached = [(at, at + PAGE_BYTES) for at in range(0, SIZE, 16 * PAGE_BYTES)]
    cache_only(path, cached)
    before = cached_ranges(path)
    done = run_recorder(tmp_path / "t.iotrace", *opens(path))
    assert done.returncode == 0, done.stderr
    assert cached_ranges(path) == before
    assert (characterize.open(tmp_path / "t.iotrace").resident["bytes"] == PAGE_BYTES).sum() >= len(cached)


@needs_engine
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0, None])
def test_a_replay_finds_as_large_a_share(tmp_path, share):
    """Where it is not known as one who reads the whole file, since nothing else of it is moved."""
    size = 12 * SIZE
    code = 0 if share is None else round(LARGE_FOLIOS_NONE + share * (LARGE_FOLIOS_ALL - LARGE_FOLIOS_NONE))
    trace = made_trace(
        fileops=[op(Fileop.FADVISE, 1, file=1)],
        files=[{"file": 1, "size_bytes": size, "resident_bytes": size}],
        resident=[{"file": 1, "offset": 0, "bytes": size, "large_folios": code}],
    )
    path = characterize.write(trace, tmp_path / "t.iotrace")
    command = [ENGINE, path, f"--directory={tmp_path / 'image'}", "--keep-image"]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    file = tmp_path / "image" / "f00000001"
    assert cached_ranges(file) == [(0, size)]
    found = large_folio_share(file)
    if share is None:
        assert found > 0.5
    else:
        assert found == pytest.approx(share, abs=0.1)  # the first window comes in single pages
