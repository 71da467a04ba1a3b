# SPDX-License-Identifier: Apache-2.0
"""Turns applications and a lab machine into recordings of what they do there: their parameters and I/O throughput.

Every run begins with its inputs made anew and out of the page cache, and is confined to the machine's memory group.
Only operations on the application's own directory count, not those on its program and libraries.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from replayer.running.binaries import find_binary
from tests.bench.backed_memory import back_free_memory
from tests.bench.load import UnavailableError
from tests.bench.postgres_load import programs as postgres_programs
from tests.bench.postgres_load import server_user
from tests.demo.sort_input import write_sort_input

SECONDS_MAX, END_SECONDS_MAX = 900, 15
SORT_BYTES, SORT_BUFFER = 96_000_000, "12M"
ACCOUNTS, TRANSACTIONS = 300_000, 1500
TREE_FILES, TREE_FILE_BYTES_MAX = 1200, 160_000
COPY_BYTES = 300_000_000
SOURCES, FUNCTIONS = 24, 60
KEYS, BLOCK_CACHE_BYTES, ROCKSDB_OPERATIONS = 600_000, 8 << 20, 40_000
PGBENCH_SCALE, PGBENCH_TRANSACTIONS = 8, 500
POSTGRES = "-c listen_addresses= -c shared_buffers=16MB -c checkpoint_timeout=1h"
CHUNK_BYTES = 1 << 20
NOT_TRUSTWORTHY = 3


@dataclass(frozen=True)
class Application:
    """A program with something to read or write.

    Attributes
    ----------
    prepare : callable
        Makes its inputs in an empty directory; returns the command to record.
    """

    name: str
    prepare: Callable[[Path], list[str]]


def _sort(place: Path) -> list[str]:
    write_sort_input(place / "input", SORT_BYTES)
    return [
        "sort",
        "--parallel=1",
        "-S",
        SORT_BUFFER,
        "-T",
        str(place),
        "-o",
        str(place / "output"),
        str(place / "input"),
    ]


def _sqlite(place: Path) -> list[str]:
    program = [str(find_binary("tests/debit_credit")), str(place / "bank.db")]
    _run(*program, "--accounts", str(ACCOUNTS), "--transactions", "1")
    return [*program, "--transactions", str(TRANSACTIONS)]


def _tar(place: Path) -> list[str]:
    generator = random.Random("tree")
    for number in range(TREE_FILES):
        file = place / "tree" / f"d{number % 40}" / f"f{number}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(generator.randbytes(generator.randint(100, TREE_FILE_BYTES_MAX)))
    return ["tar", "-C", str(place), "-cf", str(place / "tree.tar"), "tree"]


def _copy(place: Path) -> list[str]:
    generator = random.Random("copy")
    with (place / "large").open("wb") as stream:
        for _ in range(COPY_BYTES // CHUNK_BYTES):
            stream.write(generator.randbytes(CHUNK_BYTES))
    # Without this some file systems share the blocks and move nothing.
    return ["cp", "--reflink=never", str(place / "large"), str(place / "copy")]


def _compile(place: Path) -> list[str]:
    if not shutil.which("gcc"):
        raise UnavailableError("gcc is not installed")
    lines = [f"static inline int f{n}(int x) {{ return x * {n} + (x >> {n % 7}); }}" for n in range(4 * FUNCTIONS)]
    (place / "shared.h").write_text("\n".join(lines))
    for number in range(SOURCES):
        body = [f"int g{number}_{n}(int x) {{ return f{n}(x) + f{n + number}(x); }}" for n in range(FUNCTIONS)]
        (place / f"source{number}.c").write_text("\n".join(['#include "shared.h"', *body]))
    script = 'cd "$0" && for file in source*.c; do TMPDIR="$0" gcc -O1 -c "$file" || exit 1; done'
    return ["sh", "-c", script, str(place)]


def _rocksdb(place: Path) -> list[str]:
    if not shutil.which("db_bench"):
        raise UnavailableError("db_bench is not installed (Debian package rocksdb-tools)")
    program = ["db_bench", f"--db={place / 'rocksdb'}", f"--num={KEYS}", f"--cache_size={BLOCK_CACHE_BYTES}"]
    _run(*program, "--benchmarks=fillrandom,compact")
    options = ["--benchmarks=readrandomwriterandom", "--use_existing_db=1", "--threads=2", "--readwritepercent=90"]
    return [*program, *options, f"--reads={ROCKSDB_OPERATIONS}"]


def _postgres(place: Path) -> list[str]:
    found, user = postgres_programs(), server_user()
    shutil.chown(place, user["user"], user["group"])
    become = ["setpriv", f"--reuid={user['user']}", f"--regid={user['group']}", "--clear-groups"]
    start = f'{found}/pg_ctl -D cluster -s -w -l server.log -o "{POSTGRES} -k $PWD" start'
    stop = f"{found}/pg_ctl -D cluster -s -w -m fast stop"

    def script(client: str) -> list[str]:
        command = f'{found}/pgbench -h "$PWD" -U postgres {client} postgres'
        # Stopped also after an error, or the file system would stay in use.
        return [*become, "sh", "-c", f'cd "$0" && {start} && {{ {command}; x=$?; {stop}; exit $x; }}', str(place)]

    _run(*become, f"{found}/initdb", "-D", f"{place}/cluster", "-U", "postgres", "--auth=trust", "--no-sync")
    _run(*script(f"-q -i -s {PGBENCH_SCALE}"))
    return script(f"-c 4 -t {PGBENCH_TRANSACTIONS}")


APPLICATIONS = (
    Application("sort", _sort),
    Application("SQLite", _sqlite),
    Application("tar", _tar),
    Application("copy", _copy),
    Application("compile", _compile),
    Application("RocksDB", _rocksdb),
    Application("PostgreSQL", _postgres),
)


def record_application(application: Application, point: Path, memory_bytes: int, trace: Path) -> dict[str, Any]:
    """Run an application once under the recorder.

    Parameters
    ----------
    point : Path
        Of the lab machine's file system; a directory is made in it and removed.
    trace : Path
        Where the recording goes; overwritten.

    Returns
    -------
    dict
        ``bytes_per_s`` (bytes over the time with a request in flight), ``elapsed_s``, ``workload`` (the five),
        ``extended``, ``trustworthy`` (no record was lost).

    Raises
    ------
    UnavailableError
        It is not installed, or failed.
    """
    place = point / application.name.lower()
    place.mkdir()
    try:
        command = application.prepare(place)
        _evict(place)
        back_free_memory()
        record = [*_flextrace("record"), "--quiet", "--force", "--layer", "vfs", "--memory", str(memory_bytes)]
        code = _run(*record, "-o", str(trace), "--path", str(place), "--", *command, accept=(0, NOT_TRUSTWORTHY))[0]
        return {**numbers_of(trace), "trustworthy": code == 0}
    finally:
        _end_server(place)
        shutil.rmtree(place, ignore_errors=True)


def record_applications(
    application: Application, point: Path, memory_bytes: int, trace: Path, *, runs: int
) -> list[dict[str, Any]]:
    """Run an application several times; the recording that is kept is the one of median throughput, or just below.

    Of SQLite on one machine three runs in a row had 432, 389 and 302 MB/s: what is predicted from one of them has that
    one's luck in it.

    Returns
    -------
    list of dict
        As `record_application` does, by run.
    """
    traces = [trace.with_name(f"{trace.stem}-{number}{trace.suffix}") for number in range(runs)]
    try:
        done = [record_application(application, point, memory_bytes, each) for each in traces]
        by_throughput = sorted(range(runs), key=lambda number: done[number]["bytes_per_s"])
        traces[by_throughput[(runs - 1) // 2]].replace(trace)
    finally:
        for each in traces:
            each.unlink(missing_ok=True)
    return done


def numbers_of(trace: Path) -> dict[str, Any]:
    """What `record_application` returns of a recording."""
    text = _run(*_flextrace("characterize"), str(trace), "--format", "json", accept=(0, NOT_TRUSTWORTHY))[1]
    document = json.loads(text)
    layer = document["layers"]["vfs"]
    return {
        "bytes_per_s": layer["throughput_in_io_bytes_per_s"],
        "elapsed_s": document["elapsed_s"],
        "workload": layer["parameters"],
        "extended": layer["extended"],
    }


def predict_application(trace: Path, profile: Path, measured_on: Path) -> list[dict[str, Any]]:
    """What ``flextrace predict`` says of a trace, absolutely and relative to the machine that it was recorded on.

    Of parameters twice: by the five alone, which say nothing of the elapsed time, and with the recorded number in
    flight and reads of the device.

    Returns
    -------
    list of dict
        ``way``, ``predicted_bytes_per_s``, ``predicted_elapsed_s`` (None where not predicted), and their 90 %
        intervals, ``interval_bytes_per_s`` and ``interval_elapsed_s`` (pairs).
    """
    options = ["--trace", str(trace), "--measured-on", str(measured_on), "--format", "json"]
    document = json.loads(_run(*_flextrace("predict"), str(profile), *options)[1])
    found = []

    def add(way: str, bytes_per_s: dict[str, float], elapsed_s: dict[str, float] | None) -> None:
        one: dict[str, Any] = {"way": way}
        for what, estimated in (("bytes_per_s", bytes_per_s), ("elapsed_s", elapsed_s)):
            one[f"predicted_{what}"] = estimated and estimated["value"]
            one[f"interval_{what}"] = estimated and [estimated["low"], estimated["high"]]
        found.append(one)

    for each, moved in zip(document["predictions"], document["relative"], strict=True):
        name, application = each["basis"], each["application"]
        if each["model"] != "simulation":
            five = {"value": each["throughput_bytes_per_s"], "low": each["interval_low"], "high": each["interval_high"]}
            add(f"absolute; five parameters, {name}", five, None)
            name = f"extended, {name}"
        add(f"absolute; {name}", application["in_io"], application["elapsed_s"])
        if moved is not None:
            way = f"relative to the run on the first machine; {name}"
            add(way, moved["in_io"], moved["elapsed_s"])
    return found


def _flextrace(verb: str) -> list[str]:
    return [sys.executable, "-m", "flextrace", verb]


def _run(*command: str, accept: tuple[int, ...] = (0,)) -> tuple[int, str]:
    """Exit code and stdout; a command that is interrupted is given the time to take away what it made."""
    pipe = subprocess.PIPE
    # In a session of its own, so that what it started can be ended with it.
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    )
    try:
        output, said = process.communicate(timeout=SECONDS_MAX)
    except BaseException:
        _end(process)
        raise
    if process.returncode not in accept:
        text = " ".join(said.split())[-400:]
        raise UnavailableError(f"{' '.join(command)[:120]}: exit {process.returncode}: {text}")
    return process.returncode, output


def _end(process: subprocess.Popen[str]) -> None:
    for number, seconds in ((signal.SIGTERM, END_SECONDS_MAX), (signal.SIGKILL, None)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=seconds)
            return


def _end_server(place: Path) -> None:
    """A server of PostgreSQL whose script was interrupted, which would keep the file system in use."""
    file = place / "cluster" / "postmaster.pid"
    if not file.exists():
        return
    number = int(file.read_text().splitlines()[0])
    with contextlib.suppress(ProcessLookupError):
        os.kill(number, signal.SIGQUIT)
    deadline = time.monotonic() + END_SECONDS_MAX
    while Path(f"/proc/{number}").exists() and time.monotonic() < deadline:
        time.sleep(0.1)


def _evict(place: Path) -> None:
    """Write back and drop what is cached of every file."""
    os.sync()
    for path in place.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)
