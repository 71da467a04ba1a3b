# SPDX-License-Identifier: Apache-2.0
"""Logs of strace, made by hand: what they say of names, descriptors, flags and sizes of files."""

import pytest

import characterize
from characterize.extended import extended_of
from characterize.layout import FileFlag, Fileop, FileType, IoFlag, IoOp
from characterize.requests import requests_of
from characterize.response_time import syncs_of
from characterize.workload import workload_of

pytestmark = pytest.mark.parallel


def test_files_without_a_name_are_other_ones_each_time(tmp_path):
    path = tmp_path / "log"
    path.write_text(
        '1700000000.000001 openat(AT_FDCWD, "/tmp", O_RDWR|O_TMPFILE, 0600) = 3\n'
        '1700000000.000002 write(3, "", 1000) = 1000\n'
        '1700000000.000003 openat(AT_FDCWD, "/tmp", O_RDWR|O_EXCL|O_TMPFILE, 0600) = 4\n'
        '1700000000.000004 write(4, "", 1000) = 1000\n'
        '1700000000.000005 openat(AT_FDCWD, "/tmp", O_RDONLY|O_DIRECTORY) = 5\n'
    )
    trace = characterize.open(path)
    assert trace.io["file"].nunique() == 2
    assert workload_of(trace).unique_bytes == 2000
    files = trace.files.set_index("file").loc[trace.io["file"].unique()]
    assert files[["type", "flags"]].to_numpy().tolist() == [[FileType.REGULAR, FileFlag.CREATED]] * 2
    assert trace.files.set_index("path").loc["/tmp", "type"] == FileType.DIRECTORY


def test_a_name_is_free_behind_a_rename(tmp_path):
    """As of logs that are rotated, and of the temporary file that a program writes each time before it renames it."""
    path = tmp_path / "log"
    path.write_text(
        '1700000000.000001 openat(AT_FDCWD, "/log", O_WRONLY|O_CREAT|O_APPEND, 0644) = 3\n'
        '1700000000.000002 write(3, "", 100) = 100\n'
        '1700000000.000003 rename("/log", "/log.1") = 0\n'
        '1700000000.000004 openat(AT_FDCWD, "/log", O_WRONLY|O_CREAT|O_APPEND, 0644) = 4\n'
        '1700000000.000005 write(4, "", 50) = 50\n'
        '1700000000.000006 rename("/log", "/log") = 0\n'
        '1700000000.000007 openat(AT_FDCWD, "/log", O_WRONLY|O_CREAT|O_APPEND, 0644) = 5\n'
        '1700000000.000008 write(5, "", 30) = 30\n'
    )
    trace = characterize.open(path)
    first, second = trace.io["file"].unique().tolist()
    assert trace.io[["file", "offset"]].to_numpy().tolist() == [[first, 0], [second, 0], [second, 50]]
    flags = trace.files.set_index("file")["flags"]
    assert flags[[first, second]].tolist() == [0, FileFlag.CREATED]
    opens = trace.fileops[trace.fileops["op"] == Fileop.OPEN]
    assert [flags & IoFlag.CREATED for flags in opens["flags"]] == [0, IoFlag.CREATED, 0]


def test_what_lies_in_a_directory_goes_with_it(tmp_path):
    """As of programs that unpack into a directory with a name of its own, and rename it at last."""
    path = tmp_path / "log"
    path.write_text(
        '1700000000.000001 mkdir("/tmp.x", 0755) = 0\n'
        '1700000000.000002 openat(AT_FDCWD, "/tmp.x/sub/a", O_WRONLY|O_CREAT|O_EXCL, 0644) = 3\n'
        '1700000000.000003 write(3, "", 100) = 100\n'
        '1700000000.000004 rename("/tmp.x", "/done") = 0\n'
        '1700000000.000005 openat(AT_FDCWD, "/done/sub/a", O_RDONLY) = 4\n'
        '1700000000.000006 read(4, "", 70) = 70\n'
        '1700000000.000007 openat(AT_FDCWD, "/tmp.x/sub/a", O_WRONLY|O_CREAT, 0644) = 5\n'
        '1700000000.000008 write(5, "", 60) = 60\n'
        '1700000000.000009 renameat2(AT_FDCWD, "/done", AT_FDCWD, "/tmp.x", RENAME_EXCHANGE) = 0\n'
        '1700000000.000010 openat(AT_FDCWD, "/tmp.x/sub/a", O_RDONLY) = 6\n'
        '1700000000.000011 read(6, "", 50) = 50\n'
        '1700000000.000012 openat(AT_FDCWD, "/done/sub/a", O_RDONLY) = 7\n'
        '1700000000.000013 read(7, "", 40) = 40\n'
    )
    trace = characterize.open(path)
    first, second = trace.io["file"].unique().tolist()
    assert trace.io[["file", "result"]].to_numpy().tolist() == [
        [first, 100],
        [first, 70],
        [second, 60],
        [first, 50],
        [second, 40],
    ]
    assert trace.files.set_index("file")["flags"][[first, second]].tolist() == [FileFlag.CREATED] * 2
    assert workload_of(trace).unique_bytes == 160


def test_names_that_are_exchanged_are_those_of_two_files(tmp_path):
    path = tmp_path / "log"
    path.write_text(
        '1700000000.000001 openat(AT_FDCWD, "/a", O_RDONLY) = 3\n'
        '1700000000.000002 read(3, "", 100) = 100\n'
        '1700000000.000003 renameat2(AT_FDCWD, "/a", AT_FDCWD, "/b", RENAME_EXCHANGE) = 0\n'
        '1700000000.000004 openat(AT_FDCWD, "/a", O_RDONLY) = 4\n'
        '1700000000.000005 read(4, "", 70) = 70\n'
        '1700000000.000006 openat(AT_FDCWD, "/b", O_RDONLY) = 5\n'
        '1700000000.000007 read(5, "", 60) = 60\n'
        '1700000000.000008 renameat2(AT_FDCWD, "/b", AT_FDCWD, "/RENAME_EXCHANGE", 0) = 0\n'
    )
    trace = characterize.open(path)
    assert trace.io["file"].map(trace.paths).tolist() == ["/a", "/b", "/a"]
    renames = trace.fileops[trace.fileops["op"] == Fileop.RENAME]
    assert renames["length"].tolist() == [2, 0]
    assert renames["argument"].map(trace.paths).tolist() == ["/b", "/RENAME_EXCHANGE"]


def test_flags_that_change_while_a_file_is_open_and_those_of_one_call(tmp_path):
    """As dd does for a last block that is not aligned; what fcntl cannot change, such as O_DSYNC, stays."""
    path = tmp_path / "log"
    path.write_text(
        '1700000000.000001 openat(AT_FDCWD, "/a", O_WRONLY|O_DIRECT|O_DSYNC) = 3\n'
        "1700000000.000002 dup(3) = 4\n"
        '1700000000.000003 write(3, "", 4096) = 4096\n'
        "1700000000.000004 fcntl(4, F_GETFL) = 0x5001 (flags O_WRONLY|O_DIRECT|O_DSYNC)\n"
        "1700000000.000005 fcntl(4, F_SETFL, O_WRONLY|O_APPEND) = 0\n"
        '1700000000.000006 write(3, "", 100) = 100\n'
        "1700000000.000007 fcntl(3, F_SETFL, O_WRONLY|O_DIRECT) = -1 EINVAL (Invalid argument)\n"
        "1700000000.000008 fcntl(3, F_SETFL, O_WRONLY) = 0\n"
        '1700000000.000009 pwritev2(3, [{iov_base="", iov_len=50}], 1, 0, RWF_SYNC|RWF_APPEND) = 50\n'
        '1700000000.000010 pwritev2(3, [{iov_base="", iov_len=50}], 1, 0, 0) = 50\n'
        '1700000000.000011 preadv2(3, [{iov_base="", iov_len=50}], 1, -1, RWF_NOWAIT|RWF_HIPRI) = 50\n'
    )
    trace = characterize.open(path)
    direct, append, sync, dsync, nowait, hipri = (
        int(IoFlag[name]) for name in ("DIRECT", "APPEND", "SYNC", "DSYNC", "NOWAIT", "HIPRI")
    )
    every = direct | append | sync | dsync | nowait | hipri
    assert [flags & every for flags in trace.io["flags"].tolist()] == [
        direct | dsync,
        append | dsync,
        append | sync | dsync,
        dsync,
        nowait | hipri | dsync,
    ]
    assert trace.io["offset"].tolist() == [0, 4096, 4196, 0, 4196]


def test_a_range_of_descriptors_is_closed_now_or_by_an_exec(tmp_path):
    path = tmp_path / "log"
    path.write_text(
        '1700000000.000001 open("/a", O_RDONLY) = 3\n'
        '1700000000.000002 open("/b", O_RDONLY) = 4\n'
        "1700000000.000003 close_range(4, 4294967295, CLOSE_RANGE_CLOEXEC) = 0\n"
        '1700000000.000004 read(4, "", 20) = 20\n'
        '1700000000.000005 execve("/bin/x", ["x"], 0x7f) = 0\n'
        '1700000000.000006 read(4, "", 40) = 40\n'
        '1700000000.000007 read(3, "", 10) = 10\n'
        "1700000000.000008 close_range(3, 4294967295, 0) = 0\n"
        '1700000000.000009 read(3, "", 30) = 30\n'
    )
    assert characterize.open(path).io["result"].tolist() == [20, 10]


def test_a_sync_of_everything_is_one(tmp_path):
    path = tmp_path / "log"
    path.write_text(
        '1700000000.000001 open("/a", O_WRONLY) = 3\n'
        '1700000000.000002 write(3, "", 10) = 10\n'
        "1700000000.000003 sync() = 0\n"
    )
    trace = characterize.open(path)
    assert trace.fileops[["op", "file"]].to_numpy().tolist() == [[Fileop.OPEN, 1], [Fileop.SYNCFS, 0]]
    assert extended_of(trace, requests_of(trace), syncs_of(trace))["syncFrac"] == 1


def test_a_copy_asks_for_what_it_moved(tmp_path):
    """GNU cp asks for 8 EiB until the file ends: a replay of that would write as much as one call takes."""
    path = tmp_path / "log"
    path.write_text(
        '1700000000.000001 open("/a", O_RDONLY) = 3\n'
        '1700000000.000002 open("/b", O_WRONLY|O_CREAT, 0666) = 4\n'
        "1700000000.000003 copy_file_range(3, NULL, 4, NULL, 9223372035781033984, 0) = 5000\n"
        "1700000000.000004 copy_file_range(3, NULL, 4, NULL, 9223372035781033984, 0) = 0\n"
        "1700000000.000005 sendfile(4, 3, NULL, 18446744073709551615) = 0\n"
    )
    io = characterize.open(path).io.sort_values("start_ns", kind="stable")
    assert io["asked_bytes"].tolist() == io["result"].tolist() == [5000, 5000, 0, 0, 0, 0]


def test_paths_begin_in_the_directory_of_their_descriptor(tmp_path):
    """As cp and rm name files, where -y was not given; a directory that nobody saw opened is not guessed."""
    path = tmp_path / "log"
    path.write_text(
        '1700000000.000001 openat(AT_FDCWD, "/to", O_RDONLY|O_PATH|O_DIRECTORY) = 3\n'
        '1700000000.000002 openat(AT_FDCWD, "/from/a", O_RDONLY) = 4\n'
        '1700000000.000003 openat(3, "a", O_WRONLY|O_CREAT|O_EXCL, 0644) = 5\n'
        '1700000000.000004 read(4, "", 100) = 100\n'
        '1700000000.000005 write(5, "", 100) = 100\n'
        '1700000000.000006 renameat(3, "a", 3, "b") = 0\n'
        '1700000000.000007 openat(9, "c", O_RDONLY) = 6\n'
        '1700000000.000008 read(6, "", 100) = 100\n'
        '1700000000.000009 unlinkat(9, "c", 0) = 0\n'
    )
    trace = characterize.open(path)
    moved = trace.io.assign(path=trace.io["file"].map(trace.paths))
    assert moved[["path", "op"]].to_numpy().tolist() == [["/from/a", IoOp.READ], ["/to/a", IoOp.WRITE]]
    assert "/to/b" in trace.paths.values()
    assert trace.header.metadata["imported"]["left_out_paths_in_unknown_directories"] == 2


@pytest.mark.parametrize(
    ("of", "told"),
    [
        ('3, "a", {SIZE}, 0', "/d/a"),
        ('3</d>, "a", {SIZE}, AT_SYMLINK_NOFOLLOW', "/d/a"),
        ('AT_FDCWD, "/d/a", {SIZE}, 0', "/d/a"),
        ('4, "", {SIZE}, AT_EMPTY_PATH', "/d/a"),
        ('3, "b", {SIZE}, 0', None),
        ('9, "a", {SIZE}, 0', None),
    ],
)
def test_a_size_is_that_of_the_file_that_is_named(tmp_path, of, told):
    path = tmp_path / "log"
    size = "st_mode=S_IFREG|0644, st_size=4321, ..."
    path.write_text(
        '1700000000.000001 openat(AT_FDCWD, "/d", O_RDONLY|O_DIRECTORY) = 3\n'
        '1700000000.000002 openat(3, "a", O_RDONLY) = 4\n'
        f"1700000000.000003 newfstatat({of.replace('SIZE', size)}) = 0\n"
        '1700000000.000004 read(4, "", 100) = 100\n'
    )
    trace = characterize.open(path)
    sizes = dict(zip(trace.files["path"], trace.files["size_bytes"], strict=True))
    assert sizes == {"/d": 0, "/d/a": 100} | ({told: 4321} if told else {})
    assert "left_out_paths_in_unknown_directories" not in trace.header.metadata["imported"]


@pytest.mark.parametrize(
    "asked",
    [
        'statx(3, "", AT_STATX_SYNC_AS_STAT|AT_EMPTY_PATH, STATX_ALL, {stx_mask=0x1fff, SIZE})',
        'statx(AT_FDCWD, "/a", AT_STATX_SYNC_AS_STAT, STATX_ALL, {stx_mask=0x1fff, SIZE})',
        'stat("/a", {SIZE})',
        'lstat("/a", {SIZE})',
        "fstat(3, {SIZE})",
    ],
)
def test_a_file_that_is_appended_to_ends_where_stat_says(tmp_path, asked):
    path = tmp_path / "log"
    prefix = "stx" if "statx" in asked else "st"
    size = f"{prefix}_mode=S_IFREG|0644, {prefix}_size=4321, ..."
    path.write_text(
        '1700000000.000001 openat(AT_FDCWD, "/a", O_WRONLY|O_APPEND) = 3\n'
        f"1700000000.000002 {asked.replace('SIZE', size)} = 0\n"
        '1700000000.000003 write(3, "", 100) = 100\n'
    )
    trace = characterize.open(path)
    assert trace.files["size_bytes"].tolist() == [4321]
    assert trace.io["offset"].tolist() == [4321]


@pytest.mark.parametrize(
    ("mode", "size"),
    [
        ("0", 5000),
        ("FALLOC_FL_ZERO_RANGE", 5000),
        ("FALLOC_FL_KEEP_SIZE|FALLOC_FL_ZERO_RANGE", 3000),
        ("FALLOC_FL_KEEP_SIZE|FALLOC_FL_PUNCH_HOLE", 3000),
        ("FALLOC_FL_COLLAPSE_RANGE", 2000),
        ("FALLOC_FL_INSERT_RANGE", 4000),
    ],
)
def test_an_append_is_at_the_end_that_fallocate_left(tmp_path, mode, size):
    """And what stat tells then is no size that the file had before the log."""
    path = tmp_path / "log"
    path.write_text(
        '1700000000.000001 openat(AT_FDCWD, "/a, b", O_RDWR|O_CREAT|O_EXCL|O_APPEND, 0644) = 3\n'
        f'1700000000.000002 write(3, "", 3000) = 3000\n'
        f"1700000000.000003 fallocate(3</a, b>, {mode}, 4000, 1000) = 0\n"
        f"1700000000.000004 fstat(3, {{st_mode=S_IFREG|0644, st_size={size}, ...}}) = 0\n"
        '1700000000.000005 write(3, "", 100) = 100\n'
    )
    trace = characterize.open(path)
    assert trace.io["offset"].tolist() == [0, size]
    assert trace.files["size_bytes"].tolist() == [0]
    fallocate = trace.fileops[trace.fileops["op"] == Fileop.FALLOCATE]
    assert fallocate[["argument", "length"]].to_numpy().tolist() == [[4000, 1000]]


def test_what_a_file_was_made_large_by_is_no_size_that_it_had_before(tmp_path):
    """As databases make their files: no write comes before the stat."""
    path = tmp_path / "log"
    path.write_text(
        '1700000000.000001 openat(AT_FDCWD, "/a", O_RDWR|O_CREAT, 0644) = 3\n'
        "1700000000.000002 fallocate(3, 0, 0, 8192) = 0\n"
        "1700000000.000003 fstat(3, {st_mode=S_IFREG|0644, st_size=8192, ...}) = 0\n"
        '1700000000.000004 write(3, "", 100) = 100\n'
    )
    assert characterize.open(path).files["size_bytes"].tolist() == [0]
    path.write_text(path.read_text().replace("st_size=8192", "st_size=9999"))
    assert characterize.open(path).files["size_bytes"].tolist() == [9999]


@pytest.mark.parametrize("place", ["/memfd:some name (deleted)", "/SYSV0000002a (deleted)", "/dev/zero", "/proc/stat"])
def test_memory_that_has_a_descriptor_is_no_file(tmp_path, place):
    path = tmp_path / "log"
    path.write_text(
        f'1700000000.000001 write(3<{place}>, "", 100) = 100\n'
        f"1700000000.000002 mmap(NULL, 4096, PROT_READ, MAP_SHARED, 3<{place}>, 0) = 0x7f0000000000\n"
        '1700000000.000003 write(4</a (deleted)>, "", 50) = 50\n'
    )
    trace = characterize.open(path)
    assert trace.io["result"].tolist() == [50]
    assert list(trace.paths.values()) == ["/a"]
    assert not trace.header.metadata["imported"].get("left_out_mappings_of_files")
