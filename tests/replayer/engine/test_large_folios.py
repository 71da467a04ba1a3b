# SPDX-License-Identifier: Apache-2.0
"""Large folios of a file's cached pages: as recorded, and as a replay finds them."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import characterize
from characterize.layout import LARGE_FOLIOS_ALL, LARGE_FOLIOS_NONE, Fileop
from tests.traces.made_trace import made_trace
from tests.truths.page_cache import PAGE_BYTES, cache_only, cached_ranges, folio_pages, large_folio_share
from tests.truths.straced import ENGINE, needs_engine, op
from tests.truths.told import run_recorder

pytestmark = pytest.mark.root  # only root is told the frames of pages

MIB = 1 << 20
SIZE = 8 * MIB
LARGE, FEW = 0.9, 0.1
ATTEMPTS = 5  # others may drop this machine's page cache at any time


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
def _on_large_folios(tmp_path):
    if large_folio_share(written(tmp_path / "trial", MIB)) < LARGE:
        pytest.skip("this file system has no large folios")
    if large_folio_share(written(tmp_path / "trial-small", PAGE_BYTES)) > FEW:
        pytest.skip("this file system puts small writes into large folios")


def opens(*paths):
    """A program that opens files and moves nothing of them."""
    code = "import os, sys\nfor path in sys.argv[1:]: os.posix_fadvise(os.open(path, os.O_RDONLY), 0, 0, 0)"
    return [sys.executable, "-c", code, *map(str, paths)]


def until_cached(run, path, ranges):
    """Run again where others have dropped pages of the file meanwhile; what the run has returned."""
    for _ in range(ATTEMPTS):
        returned = run()
        cached = cached_ranges(path)
        if cached == ranges:
            break
    assert cached == ranges
    return returned


def share_of(code):
    assert code, "not known"
    return (code - LARGE_FOLIOS_NONE) / (LARGE_FOLIOS_ALL - LARGE_FOLIOS_NONE)


@pytest.mark.records
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


@pytest.mark.records
def test_their_size_is_recorded_as_the_frames_say(tmp_path):
    """Of each request size, as large as this file system makes folios of it; of a file of several the median."""
    files = {str(order): written(tmp_path / str(order), PAGE_BYTES << order) for order in (0, 1, 4, 7, 9)}
    files["mixed"] = written(tmp_path / "mixed", PAGE_BYTES << 2, 3 * MIB)
    written(files["mixed"], PAGE_BYTES << 6, 5 * MIB)  # appends

    def median_order(path):
        pages = folio_pages(path)
        return int(np.log2(np.median(pages[pages > 1]))) if (pages > 1).any() else 0

    expected = {name: median_order(path) for name, path in files.items()}
    assert [expected[name] for name in ("0", "1", "mixed")] == [0, 1, 6]
    done = run_recorder(tmp_path / "t.iotrace", *opens(*files.values()))
    assert done.returncode == 0, done.stderr
    trace = characterize.open(tmp_path / "t.iotrace")
    names = trace.files.set_index("file")["path"].map(os.path.basename)
    ranges = trace.resident.assign(name=trace.resident["file"].map(names))
    told = ranges[ranges["name"].isin(expected)].groupby("name")["large_folio_order"]
    assert told.unique().map(list).to_dict() == {name: [order] for name, order in expected.items()}


@pytest.mark.records
def test_nothing_is_read_for_it(tmp_path):
    """What is looked at is mapped for a moment: of a file of which little is cached no more is so afterwards."""
    path = written(tmp_path / "sparse", PAGE_BYTES)
    cached = [(at, at + PAGE_BYTES) for at in range(0, SIZE, 16 * PAGE_BYTES)]

    def recorded():
        cache_only(path, cached)
        return run_recorder(tmp_path / "t.iotrace", *opens(path), options=["--force"])

    done = until_cached(recorded, path, cached)
    assert done.returncode == 0, done.stderr
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
    file = tmp_path / "image" / "f00000001"
    until_cached(lambda: subprocess.run(command, check=True, capture_output=True, timeout=120), file, [(0, size)])
    found = large_folio_share(file)
    if share is None:
        assert found > 0.5
    else:
        assert found == pytest.approx(share, abs=0.1)  # the first window comes in single pages


def replayed_onto(image, trace):
    """Twice, since the first laying out leaves folios of its own; the file as it is before and after the second."""
    command = [ENGINE, trace, f"--directory={image}", "--keep-image"]
    subprocess.run([*command, "--phase=prepare"], check=True, capture_output=True, timeout=120)
    file = image / "f00000001"
    before = file.read_bytes()
    done = subprocess.run([*command, "--phase=run"], check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return file, before, json.loads(done.stdout)["image"]


def resident_trace(path, ranges, share, order, size=SIZE - 1234):
    code = round(LARGE_FOLIOS_NONE + share * (LARGE_FOLIOS_ALL - LARGE_FOLIOS_NONE))
    about = {"file": 1, "large_folios": code, "large_folio_order": order}
    return characterize.write(
        made_trace(
            fileops=[op(Fileop.FADVISE, 1, file=1)],
            files=[{"file": 1, "size_bytes": size, "resident_bytes": sum(end - offset for offset, end in ranges)}],
            resident=[about | {"offset": offset, "bytes": end - offset} for offset, end in ranges],
        ),
        path,
    )


@needs_engine
@pytest.mark.parametrize("order", [1, 4, 6, 9, 200])
@pytest.mark.parametrize("share", [0.5, 1.0])
def test_a_replay_finds_folios_as_large(tmp_path, share, order):
    """As one who writes requests of that size leaves them here, and the data is what it was."""
    size = SIZE - 1234
    trace = resident_trace(tmp_path / "t.iotrace", [(0, size)], share, order)
    image = tmp_path / "image"
    file, before, _ = until_cached(lambda: replayed_onto(image, trace), image / "f00000001", [(0, size)])
    pages = folio_pages(file)
    reference = folio_pages(written(tmp_path / "reference", PAGE_BYTES << min(order, 9)))
    assert (pages > 1).mean() == pytest.approx(share, abs=0.02)
    assert np.median(pages[pages > 1]) == np.median(reference)
    assert file.read_bytes() == before


@needs_engine
def test_no_page_is_cached_beside_ranges_in_large_folios(tmp_path):
    """Ranges that begin and end within folios, at the end of the file, too; smaller ones than a folio."""
    ranges = [(3, 4), (5, 37), (100, 613), (1024, 1024 + 512), (SIZE // PAGE_BYTES - 7, SIZE // PAGE_BYTES)]
    size = SIZE - 1234
    ranges = [(first * PAGE_BYTES, min(end * PAGE_BYTES, size)) for first, end in ranges]
    trace = resident_trace(tmp_path / "t.iotrace", ranges, 1.0, 6)
    place = tmp_path / "image"
    file, before, image = until_cached(lambda: replayed_onto(place, trace), place / "f00000001", ranges)
    assert image["cache_achieved_bytes"] == image["cache_wanted_bytes"] == image["cache_resident_bytes"]
    assert np.median(folio_pages(file, ranges)) == 64
    assert file.read_bytes() == before


@needs_engine
def test_what_cannot_be_written_is_read_in(tmp_path):
    """An image that chattr(1) forbids to change, to root, too; its one operation does not work then, either."""
    trace = resident_trace(tmp_path / "t.iotrace", [(0, SIZE - 1234)], 1.0, 1)
    file, _, _ = replayed_onto(tmp_path / "image", trace)
    if subprocess.run(["chattr", "+i", file], check=False, capture_output=True).returncode:
        pytest.skip("this file system has no flag that forbids changes")
    command = [ENGINE, trace, f"--directory={tmp_path / 'image'}", "--keep-image", "--phase=run"]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    finally:
        subprocess.run(["chattr", "-i", file], check=True)
    assert done.stderr == ""
    image = json.loads(done.stdout)["image"]
    assert image["cache_achieved_bytes"] == image["cache_wanted_bytes"] == SIZE - 1234
