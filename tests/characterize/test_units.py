# SPDX-License-Identifier: Apache-2.0
"""Numbers with units, in and out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from characterize.errors import FlextraceError
from characterize.units import (
    format_bytes,
    format_duration,
    format_megabytes,
    parse_duration,
    parse_fraction,
    parse_seed,
    parse_size,
)

pytestmark = pytest.mark.parallel


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4096", 4096),
        ("4096B", 4096),
        ("64MiB", 64 * 2**20),
        ("64M", 64 * 2**20),
        ("64MB", 64 * 10**6),
        ("4k", 4096),
        ("4K", 4096),
        ("4kB", 4000),
        ("4KB", 4000),
        ("4KiB", 4096),
        ("1.5G", 3 * 2**29),
        (" 2 TiB ", 2**41),
        (".5K", 512),
        ("1e6", 10**6),
    ],
)
def test_sizes(text, expected):
    assert parse_size(text) == expected


@pytest.mark.parametrize("text", ["", "M", "12Q", "-4K", "4 K B", "4Mb", "nan", "1,5G", "0x10", "1e400", "8388608T"])
def test_sizes_that_are_none(text):
    with pytest.raises(FlextraceError, match="size") as caught:
        parse_size(text)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "expected"), [("90", 90), ("10m", 600), ("250ms", 0.25), ("1.5h", 5400), ("3us", 3e-6), ("7 ns", 7e-9)]
)
def test_durations(text, expected):
    assert parse_duration(text) == pytest.approx(expected)


@pytest.mark.parametrize("text", ["", "10x", "-1s", "1 day", "1e308h", "300000h"])
def test_durations_that_are_none(text):
    with pytest.raises(FlextraceError, match="duration"):
        parse_duration(text)


@pytest.mark.parametrize(("text", "expected"), [("0.8", 0.8), ("80%", 0.8), ("0", 0), ("1", 1), ("100%", 1)])
def test_fractions(text, expected):
    assert parse_fraction(text) == pytest.approx(expected)


@pytest.mark.parametrize("text", ["1.1", "-0.1", "x", "%", "", "nan", "101%", "inf"])
def test_fractions_that_are_none(text):
    with pytest.raises(FlextraceError, match="fraction"):
        parse_fraction(text)


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (64 * 2**20, "64 MiB"),
        (1.5 * 2**30, "1.5 GiB"),
        (2**52, "4096 TiB"),
        (2**20 - 1, "1 MiB"),
        (-(2**20 - 1), "-1 MiB"),
        (2**40 - 2**20, "1 TiB"),
    ],
)
def test_bytes_as_text(size, expected):
    assert format_bytes(size) == expected


@given(st.integers(0, 2**50))
def test_text_of_bytes_is_read_back(size):
    assert parse_size(format_bytes(size)) == pytest.approx(size, rel=2e-3, abs=1)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (250, "4 min 10 s"),
        (12.3e-6, "12.3 us"),
        (0.5, "500 ms"),
        (2, "2 s"),
        (5e-9, "5 ns"),
        (0, "0 ns"),
        (0.9996, "1 s"),
        (0.9994, "999 ms"),
        (999.6e-6, "1 ms"),
        (999.6e-9, "1 us"),
        (99.96, "100 s"),
    ],
)
def test_durations_as_text(seconds, expected):
    assert format_duration(seconds) == expected


@pytest.mark.parametrize(
    ("size", "expected"),
    [(454.44e6, "454.4"), (12_254.3e6, "12254"), (9999.96e6, "10000"), (1.683e6, "1.683"), (0, "0")],
)
def test_megabytes_as_text(size, expected):
    assert format_megabytes(size) == expected


@pytest.mark.parametrize("text", ["-1", "1.5", "x", "", "nan"])
def test_seeds_that_are_none(text):
    assert parse_seed("17") == 17
    with pytest.raises(FlextraceError, match="seed"):
        parse_seed(text)
