# SPDX-License-Identifier: Apache-2.0
"""The debit-credit transactions of the demo on SQLite as a load."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from replayer.running.binaries import find_binary
from tests.bench.load import Load, Result

PROBE_TRANSACTIONS = 200


def result_of(output: str) -> Result:
    """From its line of transactions and rate."""
    transactions, rate = re.search(r"(\d+) transactions in .*: ([\d.]+) tps", output).groups()  # type: ignore[union-attr]
    return Result(float(rate), int(transactions))


@contextmanager
def sqlite_load(directory: Path, seconds: float) -> Iterator[Load]:
    """As many transactions as take about so long without recording."""
    database = directory / "bank.db"
    program = [str(find_binary("tests/debit_credit")), str(database)]
    probe = [*program, "--accounts", "100000", "--transactions", str(PROBE_TRANSACTIONS)]
    output = subprocess.run(probe, check=True, capture_output=True, text=True).stdout
    transactions = max(round(result_of(output).rate * seconds), PROBE_TRANSACTIONS)
    try:
        yield Load(
            "debit-credit on SQLite, its defaults",
            "transactions",
            5,
            [*program, "--transactions", str(transactions)],
            result_of,
        )
    finally:
        database.unlink()
