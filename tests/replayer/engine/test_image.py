# SPDX-License-Identifier: Apache-2.0
"""The image of a replay: sizes, no holes, space, what it touches and removes; told by stat, lseek and fincore."""

import json
import os
import re
import shutil
import subprocess

import pytest

import characterize
from characterize.layout import FileFlag, Fileop, FileType, HeaderFlag, IoFlag
from tests.traces.laid_out import document_of
from tests.traces.made_trace import made_trace, read, write
from tests.truths.page_cache import cached_ranges
from tests.truths.straced import ENGINE, needs_engine, needs_strace, op, strace_run_phase

pytestmark = [needs_engine, pytest.mark.parallel]
pytest_plugins = ["tests.runs.image_engine", "tests.machines.small_file_system"]

needs_fincore = pytest.mark.skipif(not shutil.which("fincore"), reason="fincore (util-linux) is not installed")


def one_file(size, **fields):
    return made_trace([read(0, 1)], files=[{"file": 1, "size_bytes": size, **fields}], flags=HeaderFlag.UNTIMED)


def test_files_have_their_sizes_and_no_holes(engine, tmp_path):
    sizes = {1: 1, 2: 4096, 3: 3_000_001, 4: 0}
    io = [read(0, min(size, 1), at, 0, file=file) for at, (file, size) in enumerate(sizes.items())]
    files = [{"file": file, "size_bytes": size} for file, size in sizes.items()]
    files += [{"file": 5, "size_bytes": 77}, {"file": 6, "flags": FileFlag.CREATED}]
    io.append(write(0, 10, 9, 0, file=6))
    document = document_of(engine(made_trace(io, files=files, flags=HeaderFlag.UNTIMED), "--phase=prepare"))
    image = tmp_path / "image"
    names = {path.name for path in image.iterdir() if not path.name.startswith(".flextrace-image.")}
    assert names == {".flextrace-image", *(f"f{file:08}" for file in sizes)}
    for file, size in sizes.items():
        path = image / f"f{file:08}"
        status = path.stat()
        assert status.st_size == size
        assert status.st_blocks * 512 >= size
        with path.open("rb") as stream:
            if size:
                assert os.lseek(stream.fileno(), 0, os.SEEK_HOLE) == size
            # Real data: zeros would be 1 different byte, pseudo-random bytes are nearly all 256.
            assert size < 3000 or len(set(path.read_bytes()[:4096])) > 200
    assert (
        document["image"] | {"files": 4, "bytes": sum(sizes.values()), "built_bytes": sum(sizes.values())}
        == (document["image"])
    )


def test_an_image_is_used_again_and_grows(engine, tmp_path):
    assert document_of(engine(one_file(100_000), "--phase=prepare"))["image"]["built_bytes"] == 100_000
    content = (tmp_path / "image" / "f00000001").read_bytes()
    assert document_of(engine(one_file(100_000), "--phase=prepare"))["image"]["built_bytes"] == 0
    assert document_of(engine(one_file(50_000), "--phase=prepare"))["image"]["built_bytes"] == 0
    assert document_of(engine(one_file(150_000), "--phase=prepare"))["image"]["built_bytes"] == 50_000
    assert (tmp_path / "image" / "f00000001").read_bytes()[:100_000] == content


def test_holes_of_an_earlier_replay_are_filled(engine, tmp_path):
    document_of(engine(one_file(1 << 20), "--phase=prepare"))
    path = tmp_path / "image" / "f00000001"
    os.truncate(path, 4096)
    os.truncate(path, 1 << 20)
    document_of(engine(one_file(1 << 20), "--phase=prepare"))
    with path.open("rb") as stream:
        assert os.lseek(stream.fileno(), 0, os.SEEK_HOLE) == 1 << 20


def test_requests_beyond_the_recorded_size_enlarge_the_file(engine, tmp_path):
    trace = made_trace([read(100_000, 4096)], files=[{"file": 1, "size_bytes": 4096}])
    document = document_of(engine(trace, "--keep-image"))
    assert (tmp_path / "image" / "f00000001").stat().st_size == 104_096
    assert any("larger than recorded" in warning for warning in document["warnings"])


def test_a_read_of_what_the_trace_wrote_itself_does_not_enlarge_the_file(engine, tmp_path):
    io = [write(4096, 4096, 1), read(4096, 4096, 5)]
    document_of(engine(made_trace(io, files=[{"file": 1, "size_bytes": 4096}]), "--phase=prepare"))
    assert (tmp_path / "image" / "f00000001").stat().st_size == 4096


def test_a_block_device_becomes_a_file_of_what_is_used(engine, tmp_path):
    device = {"file": 1, "type": FileType.BLOCK_DEVICE, "size_bytes": 1 << 40}
    document = document_of(engine(made_trace([read(8192, 4096)], files=[device]), "--keep-image"))
    assert (tmp_path / "image" / "f00000001").stat().st_size == 12288
    assert document["operations"]["done"] == 1


def test_truncating_a_block_device_does_nothing(engine, tmp_path):
    """As ``dd of=/dev/sdX`` and ``cat image >/dev/sdX`` open it."""
    device = {"file": 1, "type": FileType.BLOCK_DEVICE, "size_bytes": 1 << 40}
    opening = {"op": Fileop.OPEN, "start_ns": 1, "duration_ns": 1, "file": 1, "flags": int(IoFlag.TRUNCATED)}
    io = [write(0, 4096, 10), read(8192, 4096, 20)]
    document = document_of(engine(made_trace(io, fileops=[opening], files=[device]), "--keep-image"))
    assert (tmp_path / "image" / "f00000001").stat().st_size == 12288
    assert (document["operations"]["done"], document["operations"]["short"]) == (3, 0)


def test_everything_is_removed_at_the_end(engine, tmp_path):
    document_of(engine(one_file(4096)))
    assert not (tmp_path / "image").exists()
    (tmp_path / "image").mkdir()
    io = [write(0, 4096, 10)]
    opening = {"op": Fileop.OPEN, "start_ns": 1, "duration_ns": 1, "file": 1, "flags": 1 << 10}
    document_of(engine(made_trace(io, fileops=[opening], files=[{"file": 1, "flags": FileFlag.CREATED}])))
    assert list((tmp_path / "image").iterdir()) == []


def test_a_directory_with_other_files_is_refused_and_not_touched(engine, tmp_path):
    (tmp_path / "image").mkdir()
    (tmp_path / "image" / "thesis.tex").write_text("precious")
    done = engine(one_file(4096))
    assert done.returncode == 1
    assert "thesis.tex" in done.stderr
    assert [path.name for path in (tmp_path / "image").iterdir()] == ["thesis.tex"]


def test_files_that_are_only_called_like_those_of_an_image_are_refused(engine, tmp_path):
    """As a copy of them is, without the marker, whose name `cp image/* copy` leaves out."""
    (tmp_path / "image").mkdir()
    (tmp_path / "image" / "f00000001").write_text("precious")
    for phase in ("prepare", "run", "all"):
        done = engine(one_file(4096), f"--phase={phase}")
        assert done.returncode == 1
        assert "f00000001" in done.stderr
    assert (tmp_path / "image" / "f00000001").read_text() == "precious"
    assert len(list((tmp_path / "image").iterdir())) == 1


@needs_strace
def test_the_marker_is_removed_after_the_files(tmp_path):
    io = [read(0, 1, at, file=at) for at in range(1, 14)]
    _, calls = strace_run_phase(tmp_path, made_trace(io), "unlinkat")
    names = [re.search(r'"(.*)"', call.arguments)[1].startswith("f") for call in calls]
    assert names == [True] * 13 + [False] * 2


def test_files_of_others_beside_a_marked_image_stay(engine, tmp_path):
    document_of(engine(one_file(4096), "--phase=prepare"))
    (tmp_path / "image" / "notes").write_text("mine")
    document_of(engine(one_file(4096), "--phase=run"))
    assert [path.name for path in (tmp_path / "image").iterdir()] == ["notes"]


def test_a_link_in_place_of_a_file_is_not_followed(engine, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    document_of(engine(one_file(4096), "--phase=prepare"))
    (tmp_path / "image" / "f00000001").unlink()
    (tmp_path / "image" / "f00000001").symlink_to(victim)
    for phase in ("prepare", "run", "all"):
        assert engine(one_file(4096), f"--phase={phase}").returncode == 1
    assert victim.read_text() == "precious"


def test_a_run_without_its_image_is_refused(engine):
    done = engine(one_file(4096), "--phase=run")
    assert done.returncode == 1
    assert "holds no finished image: lay it out again" in done.stderr


def test_a_directory_in_use_is_refused(engine, tmp_path):
    (tmp_path / "image").mkdir()
    path = characterize.write(one_file(4096), tmp_path / "other.iotrace")
    other = subprocess.Popen(
        [ENGINE, path, f"--directory={tmp_path / 'image'}", "--loop", "--interval-ms=10"], stdout=subprocess.PIPE
    )
    try:
        assert other.stdout.readline().startswith(b'{"t_s"')
        done = engine(one_file(4096))
    finally:
        other.terminate()
        other.communicate(timeout=30)
    assert done.returncode == 1
    assert "another replay" in done.stderr


def test_too_little_space_is_said_before_anything_is_written(engine, small_file_system):
    done = engine(one_file(16 << 20), directory=small_file_system)
    assert done.returncode == 1
    assert "too little space" in done.stderr
    assert "no holes" in done.stderr  # a sparse original would fit
    assert "'flextrace replay' can insist with --force-space" in done.stderr  # other verbs cannot
    needed = (16 << 20) + (16 << 20) // 100
    assert f"{needed - (4 << 20)} are missing" in done.stderr
    assert list(small_file_system.iterdir()) == []


def test_what_the_trace_writes_itself_is_counted_as_well(engine, small_file_system):
    io = [write(at << 20, 1 << 20, at) for at in range(16)]
    trace = made_trace(io, files=[{"file": 1, "flags": FileFlag.CREATED}])
    done = engine(trace, directory=small_file_system)
    assert done.returncode == 1
    assert "too little space" in done.stderr
    forced = engine(trace, "--force-space", directory=small_file_system)
    document = json.loads(forced.stdout)
    assert forced.returncode == 3
    assert document["errors"].keys() == {"ENOSPC"}
    io = document["operations"]["io"]
    assert io["done"] + io["short"] + io["failed"] == io["records"] == 16


def test_files_that_are_removed_in_between_need_room_once(engine, small_file_system):
    """Ten files of 1 MiB one after the other fit into 4 MiB."""
    io, fileops, files = [], [], []
    for file in range(1, 11):
        io.append(write(0, 1 << 20, 100 * file, file=file))
        fileops.append({"op": Fileop.UNLINK, "start_ns": 100 * file + 50, "duration_ns": 1, "file": file})
        files.append({"file": file, "flags": FileFlag.CREATED})
    document = document_of(engine(made_trace(io, fileops=fileops, files=files), directory=small_file_system))
    assert document["operations"]["done"] == 20


def renaming(size, rounds):
    """In each round a new file is written at /new, after renames of ``(round of the file, new path)``."""
    io, fileops, files, paths = [], [], [], {}
    for file, renames in enumerate(rounds, 1):
        for at, (which, path) in enumerate(renames):
            name = 2**31 + len(fileops)
            fileops.append(op(Fileop.RENAME, 100 * file + at, file=which, argument=name))
            files.append({"file": name, "flags": FileFlag.NEW_NAME})
            paths[name] = path
        io.append(write(0, size, 100 * file + 50, file=file))
        files.append({"file": file, "flags": FileFlag.CREATED})
        paths[file] = "/new"
    return made_trace(io, fileops=fileops, files=files, paths=paths)


def test_files_that_are_renamed_over_need_room_once(engine, small_file_system):
    """Ten files of 1 MiB, all of them renamed to one name, as databases save themselves: two are there at one time."""
    rounds = [[(file - 1, "/data")] if file > 1 else [] for file in range(1, 11)]
    document = document_of(engine(renaming(1 << 20, rounds), directory=small_file_system))
    assert document["operations"]["done"] == 19
    names_of_their_own = [[(file - 1, f"/data.{file}")] if file > 1 else [] for file in range(1, 11)]
    done = engine(renaming(1 << 20, names_of_their_own), directory=small_file_system)
    assert done.returncode == 1
    assert f"need {(10 << 20) + (10 << 20) // 100} bytes more" in done.stderr


def test_files_that_are_made_and_renamed_over_in_turn_need_room_once(engine, small_file_system):
    """Ten rounds of two files of 1 MiB, each at the same paths, the second renamed over the first and removed."""
    io, fileops, files, paths = [], [], [], {}
    for at in range(10):
        first, second, name = 2 * at + 1, 2 * at + 2, 2**31 + at
        io += [write(0, 1 << 20, 100 * at + file, file=file) for file in (first, second)]
        fileops += [
            op(Fileop.RENAME, 100 * at + 50, file=second, argument=name),
            op(Fileop.UNLINK, 100 * at + 60, file=second),
        ]
        files += [{"file": file, "flags": FileFlag.CREATED} for file in (first, second)]
        files.append({"file": name, "flags": FileFlag.NEW_NAME})
        paths |= {first: "/data", second: "/new", name: "/data"}
    trace = made_trace(io, fileops=fileops, files=files, paths=paths)
    assert document_of(engine(trace, directory=small_file_system))["operations"]["done"] == 40


def test_files_that_are_renamed_in_turn_stay(engine, small_file_system):
    """As logs are rotated: the second last is renamed over the third last, the last one takes its name."""
    rounds = [[(file - 2, "/old.2")] * (file > 2) + [(file - 1, "/old.1")] * (file > 1) for file in range(1, 11)]
    done = engine(renaming(3 << 19, rounds), directory=small_file_system)
    assert done.returncode == 1
    assert f"need {(9 << 19) + (9 << 19) // 100} bytes more" in done.stderr
    document = document_of(engine(renaming(1 << 20, rounds), directory=small_file_system))
    assert document["operations"]["done"] == 10 + 8 + 9


def test_an_absurd_size_is_refused(engine, tmp_path):
    done = engine(one_file(1 << 60))
    assert done.returncode == 1
    assert "too little space" in done.stderr
    assert not (tmp_path / "image").exists()


def file_system_of(path):
    command = ["stat", "-f", "-c", "%T", path]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def resident(path):
    command = ["fincore", "--bytes", "--noheadings", "--output", "RES", path]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@needs_fincore
def test_the_page_cache_is_as_asked_for(engine, tmp_path):
    """One read at offset 0 of each file, which itself brings in at most the device's readahead."""
    if file_system_of(tmp_path) == "tmpfs":
        pytest.skip("a tmpfs has no place but the page cache")
    size = 64 << 20
    files = [{"file": 1, "size_bytes": size, "resident_bytes": size // 2}, {"file": 2, "size_bytes": 4096}]
    trace = made_trace([read(0, 1, 1, file=2), read(0, 1, 5)], files=files)
    expected = {"recorded": size // 2, "warm": size, "cold": 0}
    for state, wanted in expected.items():
        document = document_of(engine(trace, f"--cache={state}", "--keep-image"))
        assert document["image"]["cache_resident_bytes"] == wanted + (0 if state == "cold" else 4096)
        # The replay's own one read may have read ahead.
        assert wanted <= resident(tmp_path / "image" / "f00000001") <= wanted + (32 << 20)
    document_of(engine(trace, "--cache=cold", "--keep-image", "--phase=run"))
    kept = document_of(engine(trace, "--cache=keep", "--keep-image", "--phase=run"))
    assert kept["image"]["cache_resident_bytes"] >= 8192
    assert any("cached whole" in warning for warning in document_of(engine(trace))["warnings"])


@needs_strace
def test_what_a_disk_cannot_read_into_the_page_cache_is_its_error(tmp_path):
    """strace has madvise(2) say what the kernel says there."""
    path = characterize.write(one_file(4096), tmp_path / "t.iotrace")
    failing = ["strace", "-f", "-o", tmp_path / "log", "-e", "inject=madvise:error=EFAULT"]
    command = [*failing, ENGINE, path, f"--directory={tmp_path / 'image'}", "--cache=warm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.endswith("f00000001 into the page cache: Input/output error\n")


@pytest.mark.parametrize("count", [3, 300])
def test_what_is_laid_out_is_not_cached_and_what_was_cached_stays(engine, tmp_path, count):
    """By mincore(2): many files are flushed in another way than few. Each is read whole before it is to grow."""

    def lay_out(size):
        files = [{"file": file, "size_bytes": size} for file in range(1, count + 1)]
        io = [read(0, 1, file, 0, file=file) for file in range(1, count + 1)]
        document_of(engine(made_trace(io, files=files, flags=HeaderFlag.UNTIMED), "--cache=keep", "--phase=prepare"))
        return [tmp_path / "image" / f"f{file:08}" for file in range(1, count + 1)]

    if file_system_of(tmp_path) == "tmpfs":
        pytest.skip("a tmpfs has no place but the page cache")
    size = 16 << 12
    paths = lay_out(size)
    assert [cached_ranges(path) for path in paths] == [[]] * count
    for path in paths:
        path.read_bytes()
    cached = [cached_ranges(path) for path in paths]  # another test may have the page cache dropped meanwhile
    assert [(0, size)] in cached
    assert [cached_ranges(path) for path in lay_out(2 * size)] == cached
