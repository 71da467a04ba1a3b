# SPDX-License-Identifier: Apache-2.0
"""Sizes and times are the same to the recorder, which is written in C, as to all else."""

from __future__ import annotations

import subprocess

import pytest

from characterize.errors import FlextraceError
from characterize.units import DURATION_UNITS, SIZE_UNITS, parse_duration, parse_size
from tests.truths.told import PROGRAMS

pytestmark = pytest.mark.parallel

NUMBERS = ["0", "1", "7", "1.5", ".75", "3.", "0.25", "1e3", "2.5e-1", "007", "123456789", "1e400"]
UNITS = sorted({*SIZE_UNITS, *DURATION_UNITS, "kiB", "Mb", "Q", "BB", "K B", "GiBs"})
NONE = ["", " ", ".", "M", "-1", "+1", "-1s", "nan", "inf", "0x10", "0x1M", "1,5G", "1 2", "5 parsecs", "1..5", "1.5.5"]
TEXTS = [f"{number}{gap}{unit}" for number in NUMBERS for unit in UNITS for gap in ("", " ")] + [" 2 TiB ", *NONE]


def recorder_reads(*texts: str) -> list[list[int | None]]:
    """Bytes and nanoseconds of each text."""
    done = subprocess.run([PROGRAMS / "quantities", *texts], capture_output=True, text=True, timeout=60, check=True)
    return [[None if word == "-" else int(word) for word in line.split()] for line in done.stdout.splitlines()]


def parsed(parse, text: str) -> float | None:
    try:
        return parse(text)
    except FlextraceError:
        return None


def test_sizes():
    for text, (size, _) in zip(TEXTS, recorder_reads(*TEXTS), strict=True):
        assert size == parsed(parse_size, text), text


def test_durations():
    for text, (_, duration_ns) in zip(TEXTS, recorder_reads(*TEXTS), strict=True):
        seconds = parsed(parse_duration, text)
        assert duration_ns == (None if seconds is None else pytest.approx(seconds * 1e9, abs=1)), text


def test_sizes_by_hand():
    """To the byte, also where Python's numbers are too short."""
    by_hand = {"1.5G": 3 << 29, "0.5M": 1 << 19, "1.5": 2, f"{2**53 + 1}": 2**53 + 1, f"{2**63 - 1}": 2**63 - 1}
    assert [size for size, _ in recorder_reads(*by_hand)] == list(by_hand.values())
