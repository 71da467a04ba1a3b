# SPDX-License-Identifier: Apache-2.0
"""Names that calls are made on reach the records of these calls, whoever else makes such calls meanwhile."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

import characterize
from characterize.layout import FILEOP_NAME_SHIFT, Fileop, IoFlag
from tests.truths.straced import ENGINE, needs_engine
from tests.truths.told import run_recorder

CALLS = 10_007

pytestmark = pytest.mark.records

# On two processors, by processes whose numbers are a multiple of 64 apart.
RENAMES = """
import os, sys, time
calls, places = int(sys.argv[1]), sys.argv[2:]
processors = sorted(os.sched_getaffinity(0))
reader, writer = os.pipe()
def rename(place, processor):
    os.close(writer)
    os.read(reader, 1)  # until both are there
    os.sched_setaffinity(0, [processor])
    os.chdir(place)
    open("a", "w").close()
    for call in range(calls):
        os.rename(*("ba" if call % 2 else "ab"))
        time.sleep(0.00001)  # the rings shall not overflow
children = []
while len(children) < len(places):
    child = os.fork()
    number = child or os.getpid()
    if not children or (number - children[0]) % 64 == 0:
        if not child:
            rename(places[len(children)], processors[len(children)])
            os._exit(0)
        children.append(child)
    elif not child:
        os._exit(0)
    else:
        os.waitpid(child, 0)
os.close(writer)
for child in children: os.waitpid(child, 0)
"""


def test_the_smallest_ring_holds_the_names_of_a_rename(tmp_path):
    (tmp_path / "old").touch()
    # What Python opens before may be lost.
    script = f"import os, time; os.chdir('{tmp_path}'); time.sleep(0.2); os.rename('old', 'new'); time.sleep(0.2)"
    options = ("--layer", "vfs", "--ring-bytes", "32K")
    done = run_recorder(tmp_path / "t", "python3", "-c", script, options=options)
    assert done.returncode in {0, 3}, done.stderr
    trace = characterize.open(tmp_path / "t")
    renames = trace.fileops[trace.fileops["op"] == Fileop.RENAME]
    assert [(trace.paths[row.file], trace.paths[row.argument]) for row in renames.itertuples()] == [
        (f"{tmp_path}/old", f"{tmp_path}/new")
    ]


def test_what_is_next_is_a_command_whatever_the_trace_is_called(tmp_path):
    trace = tmp_path / "Bob's trace, $HOME.iotrace"
    told = run_recorder(trace, "true").stderr.splitlines()[-1]
    assert shlex.split(told.removeprefix("flextrace record: next: ")) == ["flextrace", "characterize", str(trace)]
    plain = tmp_path / "t-1.iotrace"
    assert run_recorder(plain, "true").stderr.splitlines()[-1].endswith(f" characterize {plain}")


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two processors")
def test_names_of_calls_at_the_same_time_are_told_apart(tmp_path):
    places = [tmp_path / "one", tmp_path / "two"]
    for place in places:
        place.mkdir()
    options = ("--layer", "vfs", "--ring-bytes", "64M")
    done = run_recorder(tmp_path / "t", "python3", "-c", RENAMES, str(CALLS), *places, options=options)
    assert done.returncode == 0, done.stderr
    trace = characterize.open(tmp_path / "t")
    renames = trace.fileops[trace.fileops["op"] == Fileop.RENAME]
    calls = [renames[renames["process"] == process] for process in sorted(set(renames["process"]))]
    # The name that each makes, and one file whose name it was before.
    made = [[trace.paths.get(name, "?") for name in each["argument"]] for each in calls]
    assert made == [[f"{place}/{'ba'[call % 2]}" for call in range(CALLS)] for place in places]
    opened = trace.fileops[(trace.fileops["op"] == Fileop.OPEN) & (trace.fileops["flags"] & int(IoFlag.CREATED) != 0)]
    assert [set(each["file"]) for each in calls] == [
        set(opened.loc[opened["process"] == each["process"].iloc[0], "file"]) for each in calls
    ]


RENAME_TO_ITSELF = """
import os
os.mkdir("d")
open("d/x", "w").close()
os.rename("d", "d")
os.unlink("d/x")
open("a", "w").close()
os.link("a", "b")
os.rename("a", "b")
os.unlink("a")
os.unlink("b")
"""


def test_names_that_a_rename_leaves_as_they_are_are_known_after_it(tmp_path):
    """Of a directory to itself, and between two names of one file, the kernel does nothing."""
    place = tmp_path / "place"
    place.mkdir()
    options = ("--layer", "vfs", "--path", str(place))
    done = run_recorder(tmp_path / "t", "python3", "-c", RENAME_TO_ITSELF, options=options, cwd=place)
    assert done.returncode == 0, done.stderr
    trace = characterize.open(tmp_path / "t")
    operations = trace.fileops[trace.fileops["result"] >= 0]
    made = {
        trace.paths[row.file]: row.file
        for row in operations.itertuples()
        if row.op == Fileop.OPEN and row.flags & IoFlag.CREATED
    }
    removed = operations.loc[operations["op"] == Fileop.UNLINK, "file"].tolist()
    assert removed == [made[f"{place}/d/x"], made[f"{place}/a"], made[f"{place}/a"]]


LINKS = """
import os
open("a", "w").close()
os.rename("a", "one")
os.link("one", "two")
os.link("two", "three")
os.unlink("two")
os.rename("three", "four")
os.mkdir("before")
os.link("one", "before/two")
os.rename("before", "after")
os.unlink("one")
os.rename("after/two", "one")
os.unlink("four")
os.unlink("one")
"""


def test_of_several_names_it_is_said_which_one_is_taken(tmp_path):
    """From the first link on, by where the name came from; what is in a directory goes along with it."""
    place = tmp_path / "place"
    place.mkdir()
    options = ("--layer", "vfs", "--path", str(place))
    done = run_recorder(tmp_path / "t", "python3", "-c", LINKS, options=options, cwd=place)
    assert done.returncode == 0, done.stderr
    trace = characterize.open(tmp_path / "t")
    (made,) = (file for file, path in trace.paths.items() if path == f"{place}/a")
    taking = trace.fileops[trace.fileops["op"].isin([Fileop.RENAME, Fileop.UNLINK]) & (trace.fileops["file"] == made)]
    names = [trace.paths.get(int(length) >> FILEOP_NAME_SHIFT, "") for length in taking["length"]]
    taken = ["", "two", "three", "one", "before/two", "four", "one"]
    assert [name.removeprefix(f"{place}/") for name in names] == taken


# Each file has a size of its own.
AT_RANDOM = """
import os, random, sys
random.seed(sys.argv[1])
names, size = "abcdef", 0
for _ in range(700):
    call = random.choice(["make", "link", "rename", "unlink"])
    there = [name for name in names if os.path.exists(name)]
    free = [name for name in names if name not in there]
    if call == "make" and free:
        size += 1
        with open(random.choice(free), "wb", 0) as file: file.write(bytes(size))
    elif call == "link" and there and free: os.link(random.choice(there), random.choice(free))
    elif call == "rename" and there: os.rename(random.choice(there), random.choice(names))
    elif call == "unlink" and there: os.unlink(random.choice(there))
"""


def sizes_and_links(files: Iterable[Path]) -> dict[int, int]:
    return {status.st_size: status.st_nlink for status in (file.stat() for file in files)}


@needs_engine
@pytest.mark.parametrize("seed", ["1", "2", "3"])
def test_a_replay_leaves_files_with_as_many_names(tmp_path, seed):
    place = tmp_path / "place"
    place.mkdir()
    options = ("--layer", "vfs", "--path", str(place))
    done = run_recorder(tmp_path / "t", "python3", "-c", AT_RANDOM, seed, options=options, cwd=place)
    assert done.returncode == 0, done.stderr
    command = [ENGINE, tmp_path / "t", f"--directory={tmp_path / 'image'}", "--keep-image"]
    replay = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(replay.stdout)["operations"]["skipped"] == 0
    left = sizes_and_links(place.iterdir())
    assert max(left.values()) > 1
    assert sizes_and_links((tmp_path / "image").glob("f*")) == left


def test_a_path_of_many_directories_is_whole(tmp_path):
    """So the prefix is found in it, and the name that is removed."""
    deep = tmp_path.joinpath(*["d"] * 60)
    deep.mkdir(parents=True)
    script = f"echo 1234 > {deep}/file; rm {deep}/file"
    done = run_recorder(tmp_path / "t", "sh", "-c", script, options=("--layer", "vfs", "--path", str(tmp_path)))
    assert done.returncode == 0, done.stderr
    trace = characterize.open(tmp_path / "t")
    written = trace.io.loc[trace.io["result"] == len("1234\n"), "file"].tolist()
    assert [trace.paths[file] for file in written] == [f"{deep}/file"]
    assert trace.fileops.loc[trace.fileops["op"] == Fileop.UNLINK, "file"].tolist() == written
