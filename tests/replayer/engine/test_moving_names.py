# SPDX-License-Identifier: Apache-2.0
"""Names that change: what one thread opens while another renames it is found, and links, renames and removals end."""

import json
import subprocess

import numpy as np
import pytest

import characterize
from characterize.layout import FILEOP_NAME_SHIFT, FileFlag, Fileop, FileType, IoFlag
from tests.traces.made_trace import made_trace, read
from tests.truths.straced import ENGINE, needs_engine, op

pytestmark = [needs_engine, pytest.mark.parallel]

PAGE = 4096
NAMES_FROM = 1 << 31
ROUNDS = 20_000
LIFE = (Fileop.OPEN, Fileop.CLOSE)
EXCHANGE = 2  # RENAME_EXCHANGE


@pytest.mark.parametrize("exchange", [False, True])
def test_a_file_is_found_while_it_is_renamed(tmp_path, exchange):
    """One thread gives it two names in turn, or exchanges them with a larger file; another opens, reads, closes it."""
    flags = {"length": EXCHANGE} if exchange else {}
    renames = [op(Fileop.RENAME, 10 * at, argument=NAMES_FROM + at % 2, **flags) for at in range(1, ROUNDS + 1)]
    lives = [op(kind, 10 * at + 3 * step, thread=2) for at in range(ROUNDS) for step, kind in enumerate(LIFE)]
    whole = [read(0, PAGE, 10 * at + 1, thread=2, asked_bytes=2 * PAGE) for at in range(ROUNDS)]
    files = [
        {"file": 1, "size_bytes": PAGE},
        {"file": 2, "size_bytes": 2 * PAGE},
        *({"file": NAMES_FROM + at, "flags": FileFlag.NEW_NAME} for at in (0, 1)),
    ]
    paths = {1: "/a", 2: "/b" if exchange else "/c", NAMES_FROM: "/a", NAMES_FROM + 1: "/b"}
    other = read(0, PAGE, 1, thread=3, file=2)
    trace = made_trace([other, *whole], fileops=renames + lives, files=files, paths=paths)
    path = characterize.write(trace, tmp_path / "t.iotrace")
    command = [ENGINE, path, f"--directory={tmp_path / 'image'}", "--order=thread"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    document = json.loads(done.stdout)
    assert not document["errors"]
    assert not document["mismatches"]
    assert document["operations"]["done"] == document["operations"]["records"] == 1 + 4 * ROUNDS


def test_a_file_that_is_first_seen_by_its_new_name_is_there(tmp_path):
    """Of what nobody has opened a recording knows only the name when that changes, and the file by its new one."""
    mover, name = NAMES_FROM, NAMES_FROM + 1
    files = [{"file": 1, "size_bytes": PAGE}, {"file": mover}, {"file": name, "flags": FileFlag.NEW_NAME}]
    lives = [op(kind, 20 * at) for at, kind in enumerate(LIFE, 1)]
    fileops = [op(Fileop.RENAME, 10, file=mover, argument=name), *lives]
    paths = {1: "/new", mover: "/old", name: "/new"}
    trace = made_trace([read(0, PAGE, 30)], fileops=fileops, files=files, paths=paths)
    path = characterize.write(trace, tmp_path / "t.iotrace")
    command = [ENGINE, path, f"--directory={tmp_path / 'image'}"]
    document = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=60).stdout)
    assert document["operations"]["done"] == document["operations"]["records"] == 4
    assert not document["mismatches"]


def test_what_comes_to_a_path_from_which_a_directory_was_moved_replaces_nothing_in_it(tmp_path):
    """As backups rotate: mv current previous; mkdir current; a new file gets the path that an old one had."""
    old, new, moved, made = 1, 2, NAMES_FROM, NAMES_FROM + 1
    names = {NAMES_FROM + 2: "/previous", NAMES_FROM + 3: "/current/x"}
    files = [
        {"file": old, "size_bytes": PAGE},
        {"file": new, "flags": FileFlag.CREATED},
        {"file": moved},  # nobody has opened it: only its name is known
        {"file": made, "type": FileType.DIRECTORY, "flags": FileFlag.CREATED},
        *({"file": name, "flags": FileFlag.NEW_NAME} for name in names),
    ]
    fileops = [
        op(Fileop.RENAME, 10, file=moved, argument=NAMES_FROM + 2),
        op(Fileop.MKDIR, 20, file=made),
        op(Fileop.OPEN, 30, file=new, flags=IoFlag.CREATED),
        op(Fileop.CLOSE, 40, file=new),
        op(Fileop.RENAME, 50, file=new, argument=NAMES_FROM + 3),
        *(op(kind, 60 + 20 * at, file=old) for at, kind in enumerate(LIFE)),
    ]
    paths = {old: "/current/x", new: "/current/x.tmp", moved: "/current", made: "/current", **names}
    io = [read(0, PAGE, 1, file=old), read(0, PAGE, 70, file=old)]
    path = characterize.write(made_trace(io, fileops=fileops, files=files, paths=paths), tmp_path / "t.iotrace")
    command = [ENGINE, path, f"--directory={tmp_path / 'image'}"]
    document = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=60).stdout)
    assert document["operations"]["done"] == document["operations"]["records"] == len(io) + len(fileops)


def run_in_turn(tmp_path, operations):
    """By one thread, of two files A and B (1, 2) and names that are no files; ends, or fails by its time."""
    fileops = [op(kind, 10 * at, **fields) for at, (kind, fields) in enumerate(operations, 1)]
    files = [{"file": file, "size_bytes": PAGE} for file in (1, 2)]
    files += [{"file": NAMES_FROM + at, "flags": FileFlag.NEW_NAME} for at in range(4)]
    trace = made_trace([read(0, PAGE, 1), read(0, PAGE, 2, file=2)], fileops=fileops, files=files)
    path = characterize.write(trace, tmp_path / "t.iotrace")
    command = [ENGINE, path, f"--directory={tmp_path / 'image'}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode in (0, 3), done.stderr
    counts = json.loads(done.stdout)["operations"]
    assert counts["records"] == counts["done"] + counts["short"] + counts["failed"] + counts["skipped"]
    return counts


def test_a_name_that_is_made_again_by_a_link_is_there_once(tmp_path):
    """No recorder opens what is only a name, but a made or a damaged trace may: its file had the name twice."""
    first, second = NAMES_FROM, NAMES_FROM + 1
    operations = [
        (Fileop.LINK, {"argument": first}),
        (Fileop.LINK, {"argument": second}),
        (Fileop.OPEN, {"file": second}),
        (Fileop.UNLINK, {"file": second}),
        (Fileop.LINK, {"argument": second}),
        (Fileop.RENAME, {"file": 2, "argument": first}),
    ]
    assert run_in_turn(tmp_path, operations)["done"] == 8


def test_a_file_that_is_renamed_to_another_of_its_names_keeps_both(tmp_path):
    operations = [
        (Fileop.LINK, {"argument": NAMES_FROM}),
        (Fileop.RENAME, {"argument": NAMES_FROM}),
        (Fileop.RENAME, {"argument": NAMES_FROM, "length": EXCHANGE}),
        (Fileop.UNLINK, {}),
        (Fileop.UNLINK, {}),
    ]
    assert run_in_turn(tmp_path, operations)["done"] == 7


def test_of_several_names_the_one_that_is_said_is_taken(tmp_path):
    """The second is renamed and, once another file has replaced the first, removed: then that file is the only one."""
    linked, renamed, replaced = (NAMES_FROM + at for at in range(3))
    fileops = [
        op(Fileop.LINK, 10, argument=linked),
        op(Fileop.RENAME, 20, argument=renamed, length=linked << FILEOP_NAME_SHIFT),
        op(Fileop.RENAME, 30, file=2, argument=replaced, length=2 << FILEOP_NAME_SHIFT),
        op(Fileop.UNLINK, 40, length=renamed << FILEOP_NAME_SHIFT),
    ]
    files = [{"file": 1, "size_bytes": PAGE}, {"file": 2, "size_bytes": 2 * PAGE}]
    files += [{"file": name, "flags": FileFlag.NEW_NAME} for name in (linked, renamed, replaced)]
    paths = {1: "/a", 2: "/new", linked: "/b", renamed: "/c", replaced: "/a"}
    trace = made_trace([read(0, PAGE, 1), read(0, PAGE, 2, file=2)], fileops=fileops, files=files, paths=paths)
    path = characterize.write(trace, tmp_path / "t.iotrace")
    command = [ENGINE, path, f"--directory={tmp_path / 'image'}", "--keep-image"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(done.stdout)["operations"]["done"] == 6
    assert [file.stat().st_size for file in (tmp_path / "image").glob("f*")] == [2 * PAGE]


@pytest.mark.parametrize("seed", range(5))
def test_whatever_is_done_to_names_ends(tmp_path, seed):
    random = np.random.default_rng(seed)
    kinds = (Fileop.LINK, Fileop.LINK, Fileop.RENAME, Fileop.UNLINK, Fileop.OPEN)
    ids = [1, 2, *(NAMES_FROM + at for at in range(4))]
    operations = []
    for _ in range(1000):
        kind = kinds[random.integers(len(kinds))]
        fields = {"file": ids[random.integers(6)]}
        if kind in (Fileop.LINK, Fileop.RENAME):
            fields["argument"] = ids[2 + random.integers(4)]
        if kind == Fileop.RENAME and random.random() < 0.3:
            fields["length"] = EXCHANGE
        if kind in (Fileop.RENAME, Fileop.UNLINK) and random.random() < 0.5:
            fields["length"] = fields.get("length", 0) | ids[random.integers(6)] << FILEOP_NAME_SHIFT
        if kind == Fileop.OPEN and random.random() < 0.5:
            fields["flags"] = IoFlag.CREATED
        operations.append((kind, fields))
    run_in_turn(tmp_path, operations)
