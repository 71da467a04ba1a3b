# SPDX-License-Identifier: Apache-2.0
"""Runs a command under strace and turns its log into calls in order: what a program really did, by another tool."""

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

import characterize

ROOT = Path(characterize.__file__).parents[1]
ENGINE = ROOT / "build" / "flextrace-replay"
DATA = "pread64,pwrite64"  # the calls that the engine moves data with

needs_engine = pytest.mark.skipif(not ENGINE.exists(), reason="build/flextrace-replay is not built (make build)")
needs_strace = pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")

_LINE = re.compile(r"(?P<thread>\d+)\s+(?P<call>\w+)\((?P<arguments>.*)\)\s+= (?P<result>-?\d+|\?)")
_UNFINISHED = re.compile(r"(\d+)\s+(\w+)\((.*) <unfinished \.\.\.>$")
_RESUMED = re.compile(r"(\d+)\s+<\.\.\. (\w+) resumed>(.*)$")


@dataclass
class Call:
    """One system call; `began` and `ended` are line numbers of the log, which is in the order of the events."""

    thread: int
    name: str
    arguments: str
    result: int
    began: int
    ended: int

    @property
    def file(self) -> str:
        """Last part of the path of the first descriptor, as ``strace -y`` prints it."""
        found = re.search(r"<([^>]*)>", self.arguments)
        return found[1].rsplit("/", 1)[-1].removesuffix(" (deleted)") if found else ""

    @property
    def numbers(self) -> list[int]:
        """The last two numbers: size and offset of a pread64 or pwrite64."""
        return [int(number) for number in self.arguments.rsplit(", ", 2)[1:]]


def strace(command: list[str], log: Path, trace: str) -> tuple[subprocess.CompletedProcess, list[Call]]:
    """Run a command; its outcome, and its calls of the set `trace` in the order of their starts."""
    done = subprocess.run(
        ["strace", "-f", "-y", "-s", "0", "-o", str(log), "-e", f"trace={trace}", *command],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    calls, waiting = [], {}
    for number, line in enumerate(log.read_text().splitlines()):
        if found := _UNFINISHED.match(line):
            waiting[found[1]] = (number, found[3])
            continue
        began, whole = number, line
        if found := _RESUMED.match(line):
            began, first = waiting.pop(found[1])
            whole = f"{found[1]} {found[2]}({first}{found[3]}"
        if (found := _LINE.match(whole)) and found["result"] != "?":
            calls.append(
                Call(int(found["thread"]), found["call"], found["arguments"], int(found["result"]), began, number)
            )
    return done, sorted(calls, key=lambda call: call.began)


def op(kind, start, *, file=1, **fields) -> dict:
    """Row of a file operation, for `made_trace`."""
    return {"op": kind, "start_ns": start, "duration_ns": 1, "file": file, **fields}


def strace_run_phase(place: Path, trace, trace_set: str = DATA, options=(), statuses=(0,)) -> tuple[dict, list[Call]]:
    """Lay a trace's image out, and run it under strace; its document and its calls."""
    path = characterize.write(trace, place / "t.iotrace", force=True)
    command = [str(ENGINE), str(path), f"--directory={place / 'image'}"]
    subprocess.run([*command, "--phase=prepare", "--keep-image"], check=True, capture_output=True)
    done, calls = strace([*command, "--phase=run", *options], place / "log", trace_set)
    assert done.returncode in statuses, done.stderr
    return json.loads(done.stdout), calls
