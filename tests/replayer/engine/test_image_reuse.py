# SPDX-License-Identifier: Apache-2.0
"""What an image was made for, how its data compresses (by gzip and zstd), and what an interrupted one leaves."""

import gzip
import json
import os
import shutil
import signal
import subprocess

import pytest

import characterize
from characterize.layout import FileFlag, Fileop, FileType, HeaderFlag, IoFlag
from flextrace.main import main
from tests.machines.small_file_system import tmpfs
from tests.runs.running_replay import own_process, wait_for_calls, wait_until
from tests.traces.laid_out import document_of
from tests.traces.made_trace import made_trace, read, write
from tests.truths.straced import ENGINE, needs_engine, needs_strace, op

pytestmark = [needs_engine, pytest.mark.parallel]
pytest_plugins = ["tests.runs.image_engine"]

SIZE = 3_000_017


def one_file(size=SIZE):
    files = [{"file": 1, "size_bytes": size, "resident_bytes": size}]
    return made_trace([read(0, 1)], files=files, flags=HeaderFlag.UNTIMED)


def seals(image):
    return [path.name for path in image.iterdir() if path.name.startswith(".flextrace-image.")]


def compressed_share(data, piece=None):
    """Compressed size / size, by gzip and by zstd, in pieces of so many bytes or all at once."""
    pieces = [data[at : at + (piece or len(data))] for at in range(0, len(data), piece or len(data))]
    shares = [sum(len(gzip.compress(part)) for part in pieces) / len(data)]
    if shutil.which("zstd"):
        command = ["zstd", "--stdout", "--quiet"]
        done = [subprocess.run(command, input=part, capture_output=True, check=True).stdout for part in pieces]
        shares.append(sum(map(len, done)) / len(data))
    return shares


@pytest.mark.parametrize(
    ("kind", "share"),
    [("random", 1.0), ("compressible", 0.5), ("compressible:20", 0.2), ("compressible:83", 0.83)],
)
def test_data_of_files_and_of_writes_compress_to_the_share_that_was_asked_for(engine, tmp_path, kind, share):
    """File 1 is laid out; file 2 is written by the trace, whose data may come again beyond the 128 KiB of btrfs."""
    io = [read(0, 1, 0), *(write(at << 16, 1 << 16, 1 + at, file=2) for at in range(11))]
    files = [{"file": 1, "size_bytes": SIZE}, {"file": 2, "flags": FileFlag.CREATED}]
    document = document_of(engine(made_trace(io, files=files), f"--data={kind}", "--keep-image"))
    assert document["image"]["data"] == ("compressible:50" if kind == "compressible" else kind)
    for name, size, piece in (("f00000001", SIZE, None), ("f00000002", 11 << 16, 128 << 10)):
        data = (tmp_path / "image" / name).read_bytes()
        assert len(data) == size
        assert b"\0" * 512 not in data  # nothing that could become a hole
        for seen in compressed_share(data, piece):
            assert seen == pytest.approx(share, abs=0.02)


@pytest.mark.parametrize("kind", ["zeros", "compressible:0", "compressible:101", "compressible:x", "compressible:", ""])
def test_unknown_kinds_of_data_are_refused(engine, tmp_path, kind):
    done = engine(one_file(), f"--data={kind}")
    assert done.returncode == 2
    assert f"--data does not know '{kind}': give random, or compressible" in done.stderr
    assert not (tmp_path / "image").exists()


def test_an_image_of_other_data_is_refused_by_a_run_and_made_anew_by_a_preparation(engine, tmp_path):
    image = tmp_path / "image"
    document_of(engine(one_file(), "--phase=prepare"))
    first = (image / "f00000001").read_bytes()
    done = engine(one_file(), "--phase=run", "--keep-image", "--data=compressible:30")
    assert done.returncode == 1
    assert "has --data random, not compressible:30" in done.stderr
    assert (image / "f00000001").read_bytes() == first
    document = document_of(engine(one_file(), "--phase=prepare", "--data=compressible:30"))
    assert document["image"]["built_bytes"] == SIZE
    assert compressed_share((image / "f00000001").read_bytes())[0] < 0.35
    document_of(engine(one_file(), "--phase=run", "--keep-image", "--data=compressible:30"))
    assert len(seals(image)) == 1
    assert document_of(engine(one_file(), "--keep-image", "--data=compressible:30"))["image"]["built_bytes"] == 0


def test_an_image_from_before_seals_is_made_anew(engine, tmp_path):
    """Of unknown data."""
    image = tmp_path / "image"
    document_of(engine(one_file(), "--phase=prepare"))
    for name in seals(image):
        (image / name).unlink()
    done = engine(one_file(), "--phase=run")
    assert done.returncode == 1
    assert "no finished image" in done.stderr
    assert document_of(engine(one_file(), "--phase=prepare"))["image"]["built_bytes"] == SIZE


def test_an_image_of_another_trace_serves_where_its_sizes_do_and_that_is_said(engine):
    def warnings(*options):
        return document_of(engine(*options, "--keep-image"))["warnings"]

    document_of(engine(one_file(), "--phase=prepare"))
    assert warnings(one_file(), "--phase=run") == []
    assert any("another trace" in warning for warning in warnings(one_file(SIZE - 1), "--phase=run"))
    assert "lay it out again" in engine(one_file(SIZE + 1), "--phase=run", "--keep-image").stderr
    # A preparation for it repairs it: nothing is to be said any more.
    document_of(engine(one_file(SIZE + 1), "--phase=prepare"))
    assert warnings(one_file(SIZE + 1), "--phase=run") == []


@pytest.mark.parametrize("kind", [Fileop.LINK, Fileop.SYMLINK])
def test_links_that_a_replay_leaves_are_no_files_of_the_next_trace(engine, tmp_path, kind):
    """The engine names a new name after the files of its trace: here as the second file of the other one."""
    first, second = (tmp_path / "image" / name for name in ("f00000001", "f00000002"))
    files = [{"file": 1, "size_bytes": SIZE}, {"file": 2**31, "flags": FileFlag.NEW_NAME}]
    linking = op(kind, 9, file=int(kind == Fileop.LINK), argument=2**31)
    trace = made_trace([read(0, 1, 1)], fileops=[linking], files=files)
    document = document_of(engine(trace, "--keep-image", "--loop", "--max-seconds=0.3"))
    assert document["mismatches"] == {}
    assert document["image"]["built_bytes"] == SIZE  # no pass made the file anew
    assert document_of(engine(trace, "--keep-image"))["image"]["built_bytes"] == 0
    assert second.is_symlink() or first.stat().st_ino == second.stat().st_ino
    files = [{"file": 1, "size_bytes": SIZE}, {"file": 2, "size_bytes": SIZE + 5000}]
    other = made_trace([read(0, 1, 1), read(0, 1, 2, file=2)], files=files)
    assert engine(other, "--phase=run", "--keep-image").returncode == 1
    document_of(engine(other, "--phase=prepare"))
    found = [path.lstat() for path in (first, second)]
    assert [(status.st_size, status.st_nlink) for status in found] == [(SIZE, 1), (SIZE + 5000, 1)]
    assert document_of(engine(other, "--phase=run", "--keep-image"))["operations"]["done"] == 2


def test_a_file_with_two_names_is_no_two_files_of_a_run(engine, tmp_path):
    first, second = (tmp_path / "image" / name for name in ("f00000001", "f00000002"))
    files = [{"file": file, "size_bytes": SIZE} for file in (1, 2)]
    trace = made_trace([read(0, 1, 1), read(0, 1, 2, file=2)], files=files)
    document_of(engine(trace, "--phase=prepare"))
    second.unlink()
    second.hardlink_to(first)
    done = engine(trace, "--phase=run", "--keep-image")
    assert done.returncode == 1
    assert "lay it out again" in done.stderr


def interrupt_layout(tmp_path, directory, *options):
    """A layout of 40 GB that never ends by itself, interrupted when there is something of it."""
    path = characterize.write(one_file(40 << 30), tmp_path / "large.iotrace", force=True)
    command = [ENGINE, path, f"--directory={directory}", "--force-space", *options]
    with own_process(command) as process:
        wait_until(lambda: any(path.stat().st_size > 1 << 20 for path in directory.glob("f00000001")))
        process.send_signal(signal.SIGINT)
        _, complaint = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "interrupted while laying out" in complaint
    assert complaint.count("\n") == 1


def test_an_interrupted_layout_leaves_nothing_unless_the_image_is_kept(engine, tmp_path):
    fresh, there, kept = (tmp_path / name for name in ("fresh", "there", "kept"))
    there.mkdir()
    (tmp_path / "beside").write_text("precious")
    interrupt_layout(tmp_path, fresh)
    assert not fresh.exists()
    interrupt_layout(tmp_path, there)
    assert list(there.iterdir()) == []
    kept.mkdir()
    interrupt_layout(tmp_path, kept, "--keep-image")
    size = (kept / "f00000001").stat().st_size
    assert seals(kept) == [".flextrace-image.random.unfinished"]
    done = engine(one_file(1 << 20), "--phase=run", "--keep-image", directory=kept)
    assert done.returncode == 1
    assert "no finished image" in done.stderr
    # The next preparation goes on from there.
    os.truncate(kept / "f00000001", 1 << 20)
    assert size >= 1 << 20
    document = document_of(engine(one_file(2 << 20), "--phase=prepare", directory=kept))
    assert document["image"]["built_bytes"] == 1 << 20
    assert (tmp_path / "beside").read_text() == "precious"


def test_a_change_of_data_that_is_interrupted_leaves_none_of_the_other_kind(engine, tmp_path):
    """Neither of files that it has not come to nor of those of another trace."""
    image = tmp_path / "image"

    def files_of(count):
        io = [read(0, 1, at, file=at) for at in range(1, count + 1)]
        files = [{"file": at, "size_bytes": SIZE if at > 1 else 1000} for at in range(1, count + 1)]
        return made_trace(io, files=files)

    document_of(engine(files_of(3), "--phase=prepare"))
    interrupt_layout(tmp_path, image, "--phase=prepare", "--data=compressible:30")
    for count in (2, 3):
        document_of(engine(files_of(count), "--phase=prepare", "--data=compressible:30"))
        assert compressed_share((image / f"f{count:08}").read_bytes())[0] < 0.35


@pytest.fixture
def few_inodes(tmp_path):
    """Directory of a tmpfs with 40 inodes, one of which is the directory's."""
    with tmpfs(tmp_path / "few", "size=64M,nr_inodes=40") as place:
        yield place


def making_files(count, ending=None):
    """A trace that makes files one after the other, and after each does an operation of the kind `ending`."""
    fileops, files = [], []
    for file in range(1, count + 1):
        start = 100 * file
        fileops.append(op(Fileop.OPEN, start, file=file, flags=IoFlag.CREATED))
        fileops.append(op(Fileop.CLOSE, start + 10, file=file))
        files.append({"file": file, "flags": FileFlag.CREATED})
        if ending == Fileop.UNLINK:
            fileops.append(op(ending, start + 20, file=file))
        if ending == Fileop.RENAME:
            fileops.append(op(ending, start + 20, file=file, argument=2**31 + file))
            files.append({"file": 2**31 + file, "flags": FileFlag.NEW_NAME})
    paths = {2**31 + file: "/there" for file in range(1, count + 1)} if ending == Fileop.RENAME else None
    return made_trace([write(0, 1, 1)], fileops=fileops, files=files, paths=paths)


def test_too_few_inodes_are_said_before_anything_is_made(engine, few_inodes):
    done = engine(making_files(97), directory=few_inodes)
    assert done.returncode == 1
    assert "too few inodes" in done.stderr
    assert "need 97" in done.stderr
    assert list(few_inodes.iterdir()) == []
    io = [read(0, 1, at, file=at) for at in range(1, 54)]
    files = [{"file": file, "size_bytes": 1} for file in range(1, 54)]
    assert "need 53" in engine(made_trace(io, files=files), directory=few_inodes).stderr


def test_inodes_of_files_that_an_earlier_replay_has_made_are_free_again(engine, few_inodes):
    for _ in range(3):
        document = document_of(engine(making_files(23), "--keep-image", directory=few_inodes))
        assert document["operations"]["failed"] == 0


def test_a_layout_that_fails_leaves_nothing_of_its_own_and_an_earlier_image(engine, few_inodes):
    """By files without data it fails before a byte is written."""
    count = 53
    fileops = [op(Fileop.FADVISE, file, file=file) for file in range(1, count + 1)]
    files = [{"file": file, "size_bytes": 0} for file in range(1, count + 1)]
    done = engine(made_trace(fileops=fileops, files=files), "--force-space", directory=few_inodes)
    assert done.returncode == 1
    assert "No space left" in done.stderr
    assert list(few_inodes.iterdir()) == []
    document_of(engine(one_file(), "--phase=prepare", directory=few_inodes))
    full = [{**row, "size_bytes": 1} for row in files]
    assert engine(made_trace(fileops=fileops, files=full), "--force-space", directory=few_inodes).returncode == 1
    assert (few_inodes / "f00000001").stat().st_size == SIZE


@pytest.mark.parametrize("ending", [Fileop.UNLINK, Fileop.RENAME])
def test_files_that_are_removed_or_replaced_take_one_inode_in_turn(engine, few_inodes, ending):
    document = document_of(engine(making_files(97, ending), directory=few_inodes))
    assert document["operations"]["failed"] == 0
    assert document["operations"]["fileop"]["done"] == 97 * 3


def test_a_read_only_directory_is_refused(engine, tmp_path):
    with tmpfs(tmp_path / "locked", "ro") as place:
        done = engine(one_file(), directory=place)
        new = engine(one_file(), directory=place / "new")
    assert done.returncode == new.returncode == 1
    assert "Read-only file system" in done.stderr
    assert "Read-only file system" in new.stderr


def test_a_trace_without_sizes_takes_them_from_the_requests(engine, tmp_path):
    io = [read(5000, 777, 1), read(0, 1, 2, file=2)]
    document = document_of(engine(made_trace(io), "--keep-image"))
    assert (tmp_path / "image" / "f00000001").stat().st_size == 5777
    assert (tmp_path / "image" / "f00000002").stat().st_size == 1
    assert any("2 files have no FILE record" in warning for warning in document["warnings"])
    assert document["operations"]["done"] == 2


def test_directories_are_remembered_by_the_seal(engine):
    files = [{"file": 1, "type": FileType.DIRECTORY}, {"file": 2, "size_bytes": 5, "resident_bytes": 5}]
    removal = made_trace([read(0, 5, 1, file=2)], fileops=[op(Fileop.RMDIR, 9)], files=files)
    document_of(engine(removal, "--phase=prepare"))
    assert document_of(engine(removal, "--phase=run", "--keep-image"))["warnings"] == []


def test_the_verb_keeps_an_image_and_uses_it_again(tmp_path, capsys):
    trace = characterize.write(one_file(), tmp_path / "t.iotrace")
    image = tmp_path / "image"

    def built(*options):
        assert main(["replay", str(trace), *map(str, options), "--format", "json"]) == 0
        return json.loads(capsys.readouterr().out)["image"]["built_bytes"]

    assert built("--image", image) == SIZE
    assert built("--image", image) == 0
    assert built("--image", image, "--data", "compressible:10") == SIZE
    assert compressed_share((image / "f00000001").read_bytes())[0] < 0.15
    assert main(["replay", str(trace), "--image", str(image), "--data", "compressible:10"]) == 0
    assert f"page cache    {SIZE / 2**20:.4g} MiB of {SIZE / 2**20:.4g} MiB in 1 ranges" in capsys.readouterr().out
    assert built("--directory", image) == SIZE
    assert list(image.iterdir()) == []


@needs_strace
def test_a_stop_while_a_pass_is_undone_leaves_the_result(tmp_path):
    """strace makes the undoing of a truncation slow: each of its 64 writes of 1 MiB takes 20 ms."""
    size = 64 << 20
    trace = made_trace(
        fileops=[op(Fileop.TRUNCATE, 1, argument=0), op(Fileop.FADVISE, 2)],
        files=[{"file": 1, "size_bytes": size, "resident_bytes": 0}],
    )
    path = characterize.write(trace, tmp_path / "t.iotrace")
    command = [ENGINE, path, f"--directory={tmp_path / 'image'}"]
    subprocess.run([*command, "--phase=prepare"], check=True, capture_output=True)
    log = tmp_path / "log"
    slow = ["strace", "-f", "-o", log, "-e", "trace=pwrite64", "-e", "inject=pwrite64:delay_enter=20000"]
    with own_process([*slow, *command, "--phase=run", "--loop"]) as process:
        wait_for_calls(log, "pwrite64", 4)
        os.kill(int(log.read_text().split()[0]), signal.SIGINT)
        document = json.loads(process.communicate(timeout=100)[0])
    assert process.returncode == 0
    assert document["stopped"] == "signal"
    assert document["operations"]["done"] >= 2
    assert not (tmp_path / "image" / "f00000001").exists()


@needs_strace
@pytest.mark.parametrize("phase", ["all", "run"])
def test_looking_at_the_files_of_an_image_is_interrupted(engine, tmp_path, phase):
    """Of which there are many, all laid out already; strace makes looking slow."""
    count = 2000
    io = [read(0, 1, at, 0, file=at) for at in range(1, count + 1)]
    trace = made_trace(io, files=[{"file": at, "size_bytes": 1} for at in range(1, count + 1)])
    document_of(engine(trace, "--phase=prepare"))
    path = characterize.write(trace, tmp_path / "t.iotrace", force=True)
    log = tmp_path / "log"
    calls = "newfstatat" if phase == "run" else "openat"
    slow = ["-e", f"trace={calls}", "-e", f"inject={calls}:delay_enter=10000:when=100+"]
    command = ["strace", "-f", "-o", log, *slow, ENGINE, path, f"--directory={tmp_path / 'image'}", f"--phase={phase}"]
    with own_process(command) as process:
        wait_for_calls(log, calls, 121)
        os.kill(int(log.read_text().split()[0]), signal.SIGINT)
        complaint = process.communicate(timeout=60)[1]
    assert process.returncode == 1
    assert complaint.startswith("flextrace-replay: interrupted while ")
    assert log.read_text().count(f"{calls}(") < count / 2
