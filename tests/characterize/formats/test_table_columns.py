# SPDX-License-Identifier: Apache-2.0
"""Columns of tables: which is which by --columns, units of times, exponents, quotation marks, times nobody measured."""

import pandas as pd
import pytest

import characterize
from characterize.errors import FlextraceError
from characterize.formats import csv_export
from characterize.formats.foreign import read_foreign
from characterize.formats.reading import ReadOptions
from characterize.formats.registry import FORMATS, found_format
from characterize.layout import HeaderFlag
from flextrace.main import main
from tests.traces.made_trace import made_trace, read

pytestmark = pytest.mark.parallel

FILETIME = 128_166_372_000_000_000
"""2007-02-22 17:00:00 UTC, which is 1172163600 s since 1970, in ticks of 100 ns since 1601."""
BEGIN_NS = 1_172_163_600 * 10**9


def table(tmp_path, *lines):
    path = tmp_path / "t.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def times_of(trace):
    return trace.blocks[["start_ns", "duration_ns"]].to_numpy().tolist()


@pytest.mark.parametrize("odd", ["", "# a line that only the pattern reads"], ids=["fast", "by the pattern"])
def test_times_with_exponents(tmp_path, odd):
    """As Python and pandas print every number below 1e-4; what is below a nanosecond does not count."""
    lines = ["start,op,offset,bytes,latency_s", "5e-1,R,0,4096,4.5678901234e-05", "1.577808000123456e+09,W,0,512,1E-6"]
    options = ReadOptions("csv", skip_bad=bool(odd))
    trace = read_foreign(table(tmp_path, *lines, *([odd] if odd else [])), options)
    assert times_of(trace) == [[500_000_000, 45_678], [1_577_808_000_123_456_000, 1_000]]


def test_a_time_beyond_all_clocks_is_a_malformed_line(tmp_path):
    with pytest.raises(FlextraceError, match="line 2"):
        characterize.open(table(tmp_path, "start,op,offset,bytes", "1e99,R,0,4096"))


@pytest.mark.parametrize("odd", ["", "# a line that only the pattern reads"], ids=["fast", "by the pattern"])
def test_numbers_of_19_digits(tmp_path, odd):
    """Of a recording whose clock is that of the day: times in ns; of a thread that is the millionth, calls."""
    times, call = [1_700_000_000_123_456_789, 1_700_000_000_123_456_999], 2**20 << 40
    made = made_trace([read(0, 4096, time, 5, id=call + at) for at, time in enumerate(times)])
    path = tmp_path / "t.csv"
    csv_export.write(made, path)
    path.write_text(path.read_text() + f"{odd}\n")
    trace = read_foreign(path, ReadOptions("csv", skip_bad=True))
    assert trace.io["start_ns"].tolist() == times
    assert trace.io["id"].tolist() == [call, call + 1]
    assert trace.header.complete != bool(odd)


def test_a_time_of_19_digits_may_be_beyond_64_bits(tmp_path):
    lines = ["start_ns,op,offset,bytes", "1700000000123456789,R,0,4096", "9300000000000000000,R,0,4096"]
    with pytest.raises(FlextraceError, match=r"line 3: expected a time of 0 to 2\^63 ns"):
        characterize.open(table(tmp_path, *lines))


def test_a_column_that_is_named_wins_over_one_of_that_name(tmp_path):
    lines = ["op,offset,time,size,real_offset,when", "R,7,0.5,512,4096,2"]
    options = ReadOptions("csv", columns={"offset": "real_offset", "start_us": "when"})
    trace = read_foreign(table(tmp_path, *lines), options)
    assert trace.blocks[["sector", "start_ns"]].to_numpy().tolist() == [[8, 2000]]


@pytest.mark.parametrize(
    ("columns", "sector", "size"),
    [
        ({"sector": "lba"}, 7, 512),
        ({"sectors": "blocks"}, 8, 1536),
        ({"sector": "lba", "sectors": "blocks"}, 7, 1536),
        ({"offset": "offset"}, 8, 512),
    ],
)
def test_a_place_or_size_that_is_named_in_sectors_wins_over_one_in_bytes(tmp_path, columns, sector, size):
    path = table(tmp_path, "start,op,offset,bytes,lba,blocks", "0,R,4096,512,7,3")
    trace = read_foreign(path, ReadOptions("csv", columns=columns))
    assert trace.blocks[["sector", "bytes"]].to_numpy().tolist() == [[sector, size]]
    assert trace.header.metadata["imported"]["columns"].items() >= columns.items()


@pytest.mark.parametrize("name", ["latencyy", "offset_us", ""])
def test_a_column_cannot_be_what_there_is_not(tmp_path, name):
    path = table(tmp_path, "start,op,offset,bytes,rt", "0,R,4096,512,7")
    with pytest.raises(FlextraceError, match=f"--columns {name}=rt is not understood: .* start, duration, op") as told:
        read_foreign(path, ReadOptions("csv", columns={name: "rt"}))
    assert told.value.exit_code == 2


@pytest.mark.parametrize("name", [name for name in FORMATS if name not in {"csv", "parquet"}])
def test_columns_of_what_is_no_table_are_refused(tmp_path, name):
    with pytest.raises(FlextraceError, match=f"{name} leaves no choice of this: omit --columns") as told:
        read_foreign(table(tmp_path, "0"), ReadOptions(name, columns={"start": "when"}))
    assert told.value.exit_code == 2


@pytest.mark.parametrize("floating", [False, True])
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_beside_file_times_durations_are_ticks(tmp_path, suffix, floating):
    start = FILETIME + 16  # a float has 53 bits: multiples of 16 there
    frame = pd.DataFrame({"timestamp": [start], "op": ["R"], "offset": [0], "size": [512], "latency": [41286]})
    path = tmp_path / f"t.{suffix}"
    if suffix == "csv":
        frame.to_csv(path, index=False)
    else:
        frame.astype({"timestamp": float, "latency": float} if floating else {}).to_parquet(path)
    trace = read_foreign(path, ReadOptions(suffix, time_unit="filetime"))
    assert times_of(trace) == [[BEGIN_NS + 1600, 4_128_600]]


def test_a_unit_that_is_given_is_that_of_every_time_without_one(tmp_path):
    path = table(tmp_path, "start_ns,op,offset,bytes,latency", "5,R,0,512,7")
    assert times_of(read_foreign(path, ReadOptions("csv", time_unit="us"))) == [[5, 7000]]


@pytest.mark.parametrize(
    ("names", "unit", "told"),
    [
        ("start_ms,op,offset,bytes,latency", "us", "ms (start), us (duration)"),
        ("start_ms,op,offset,bytes,latency", None, "ms"),
        ("start_ms,op,offset,bytes,note", "us", "ms"),
        ("start,op,offset,bytes,latency", None, "s"),
        ("start,op,offset,bytes,latency_ns", "ms", "ms (start), ns (duration)"),
        ("timestamp,op,offset,bytes,latency", "filetime", "filetime (start), 100ns (duration)"),
    ],
)
def test_units_that_differ_are_told_of_each_time(tmp_path, capsys, names, unit, told):
    path = table(tmp_path, names, f"{FILETIME if unit == 'filetime' else 5},R,0,512,7")
    options = ["--time-unit", unit] if unit else []
    assert main(["import", str(path), "-o", str(tmp_path / "o.iotrace"), *options]) == 0
    assert f"taken for granted: time_unit {told}\n" in capsys.readouterr().err


def test_quoted_numbers_are_numbers_beside_a_line_that_is_wrong(tmp_path):
    lines = ["start,op,offset,bytes", *(f'"{at}.5","R","0","4096"' for at in range(3)), '"9.5","D","0","4096"']
    path = table(tmp_path, *lines)
    with pytest.raises(FlextraceError, match="line 5"):
        characterize.open(path)
    trace = read_foreign(path, ReadOptions("csv", skip_bad=True))
    assert times_of(trace) == [[at * 10**9 + 500_000_000, 0] for at in range(3)]


OTHER_HEADERS = {
    "spc": ("disk,offset,size,op,time", "0,4096,4096,R,0.5"),
    "alibaba": ("start_ms,op,offset,size,latency", "5,R,4096,4096,7"),
    "tencent": ("start,lba,blocks,rw,disk", "1538323200,8,8,1,1063"),
    "msr": ("ts,volume,tid,op,offset,size,rt", f"{FILETIME},usr,0,Read,512,512,7"),
}
OWN_HEADERS = {
    "spc": ("ASU,LBA,Size,Opcode,Timestamp", "0,8,4096,R,0.5"),
    "alibaba": ("device_id,opcode,offset,length,timestamp", "5,R,4096,4096,1577808000000046"),
    "tencent": ("Timestamp,Offset,Size,IOType,VolumeID", "1538323200,8,8,1,1063"),
    "msr": ("Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime", f"{FILETIME},usr,0,Read,512,512,7"),
    "cloudphysics": ("version,time,op,size,lbn", "1,10,28,4096,7"),
}


@pytest.mark.parametrize("name", OTHER_HEADERS)
def test_names_of_columns_say_more_than_lines_that_look_like_another_format(tmp_path, name):
    header, line = OTHER_HEADERS[name]
    assert found_format(table(tmp_path, line)).name == name
    assert found_format(table(tmp_path, header, line)).name == "csv"
    with pytest.raises(FlextraceError, match="no trace of another tool that is known"):
        found_format(table(tmp_path, header.replace("s", "z").replace("o", "z"), line))


@pytest.mark.parametrize("name", OWN_HEADERS)
def test_a_format_may_have_its_own_names_of_columns(tmp_path, name):
    path = table(tmp_path, *OWN_HEADERS[name])
    assert found_format(path).name == name
    assert len(characterize.open(path).blocks) == 1


def test_a_table_is_read_by_its_own_units(tmp_path):
    trace = characterize.open(table(tmp_path, *OTHER_HEADERS["spc"]))
    assert trace.blocks[["sector", "bytes", "start_ns"]].to_numpy().tolist() == [[8, 4096, 500_000_000]]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_columns_that_are_named_say_that_it_is_a_table(tmp_path, suffix):
    frame = pd.DataFrame({"unit": [0], "at": [4096], "much": [512], "what": ["R"], "when": [0.5]})
    path = tmp_path / f"t.{suffix}"
    frame.to_csv(path, index=False) if suffix == "csv" else frame.to_parquet(path)
    columns = {"start": "when", "op": "what", "offset": "at", "bytes": "much"}
    assert read_foreign(path, ReadOptions(columns=columns)).blocks["sector"].tolist() == [8]


@pytest.mark.parametrize("flags", [HeaderFlag.UNTIMED, HeaderFlag.PLANNED])
def test_a_table_of_a_trace_that_has_not_run_tells_no_durations(tmp_path, capsys, flags):
    trace = made_trace([read(4096 * at, 4096, at, 5) for at in range(9)], files=[{"file": 1}], flags=flags)
    characterize.write(trace, tmp_path / "t.iotrace")
    assert main(["export", str(tmp_path / "t.iotrace"), "-o", str(tmp_path / "t.csv")]) == 0
    assert "has not run" in "".join(capsys.readouterr())
    assert characterize.open(tmp_path / "t.csv").header.metadata["durations"] == "unknown"
