# SPDX-License-Identifier: Apache-2.0
"""RocksDB's db_bench as a load: two threads, nine reads to a write, a block cache much smaller than the database."""

from __future__ import annotations

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
    """A database filled at random and compacted."""
    if not shutil.which("db_bench"):
        raise UnavailableError("db_bench is not installed (Debian package rocksdb-tools)")
    database = directory / "rocksdb"
    program = ["db_bench", f"--db={database}", f"--num={KEYS}", f"--cache_size={CACHE_BYTES}"]
    try:
        subprocess.run([*program, "--benchmarks=fillrandom,compact"], check=True, capture_output=True)
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
        )
    finally:
        shutil.rmtree(database, ignore_errors=True)
