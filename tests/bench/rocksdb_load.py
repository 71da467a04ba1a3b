# SPDX-License-Identifier: Apache-2.0
"""RocksDB's db_bench as a load: two threads, nine reads to a write, a block cache much smaller than the database."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench.load import Load, Result, UnavailableError

KEYS = 1_000_000
CACHE_BYTES = 8 << 20


def result_of(output: str) -> Result:
    """From its line of one benchmark."""
    line = re.search(r"^readrandomwriterandom .* (\d+) ops/sec .* (\d+) operations;", output, re.MULTILINE)
    rate, operations = line.groups()  # type: ignore[union-attr]
    return Result(float(rate), int(operations))


@contextmanager
def rocksdb_load(directory: Path, seconds: float) -> Iterator[Load]:
    """A database filled at random and compacted, the same one before every run.

    A run leaves its writes as one more file of level 0, in which every read of the next has to look: left alone, the
    rate falls from run to run, until one compacts. So each run gets a copy of the first state.
    """
    if not shutil.which("db_bench"):
        raise UnavailableError("db_bench is not installed (Debian package rocksdb-tools)")
    database, filled = directory / "rocksdb", directory / "rocksdb-filled"

    def restore() -> None:
        shutil.rmtree(database, ignore_errors=True)
        shutil.copytree(filled, database)
        os.sync()  # or its write-back would be part of the run

    program = ["db_bench", f"--db={database}", f"--num={KEYS}", f"--cache_size={CACHE_BYTES}"]
    try:
        subprocess.run([*program, "--benchmarks=fillrandom,compact"], check=True, capture_output=True)
        database.rename(filled)
        yield Load(
            "RocksDB, db_bench readrandomwriterandom, 90 % reads, 2 threads",
            "operations",
            5,
            [
                *program,
                *("--benchmarks=readrandomwriterandom", "--use_existing_db=1", "--threads=2"),
                *("--readwritepercent=90", f"--duration={max(round(seconds), 1)}"),
            ],
            result_of,
            prepare=restore,
        )
    finally:
        shutil.rmtree(database, ignore_errors=True)
        shutil.rmtree(filled, ignore_errors=True)
