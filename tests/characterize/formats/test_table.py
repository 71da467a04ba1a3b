# SPDX-License-Identifier: Apache-2.0
"""Tables whose columns have names, as CSV and Parquet: hand-made ones against values computed by hand."""

import pandas as pd
import pytest

import characterize
from characterize.errors import FlextraceError
from characterize.formats.foreign import read_foreign
from characterize.formats.reading import ReadOptions
from characterize.layout import BlockOp
from characterize.workload import workload_of
from flextrace.main import main
from tests.traces.foreign_traces import READ, TABLE, WRITE, made, rows_of

pytestmark = pytest.mark.parallel


def test_a_table_with_names(tmp_path):
    trace = characterize.open(made(tmp_path, TABLE))
    assert rows_of(trace) == [
        (10500, 100_000, 1, 8, 4096, READ),
        (11000, 5250, 2, 16, 512, WRITE),
        (12000, 1000, 1, 0, 512, int(BlockOp.DISCARD)),
    ]
    assert trace.blocks["thread"].tolist() == [7, 8, 7]
    assert [it["name"] for it in trace.header.metadata["devices"]] == ["vol-a", "vol,b"]
    assert [trace.device_name(device) for device in (1, 2, 3)] == ["vol-a", "vol,b", "0:3"]


def test_columns_that_are_understood_by_other_names_are_said(tmp_path, capsys):
    path = made(tmp_path, TABLE)
    assert main(["import", str(path), "-o", str(tmp_path / "o.iotrace")]) == 0
    said = capsys.readouterr().err
    assert "taken for granted: column lba as sector" in said
    assert "taken for granted: column timestamp_us as start" in said
    assert "column op" not in said
    assert main(["characterize", str(path)]) == 0
    assert "column volume as device" in capsys.readouterr().err


def test_columns_can_be_named(tmp_path):
    text = "when,what,where,much,op\n3,R,4096,512,ignored\n5,W,8192,1024,ignored\n"
    options = ReadOptions(
        "csv", time_unit="ms", columns={"start": "when", "op": "what", "offset": "where", "bytes": "much"}
    )
    assert rows_of(read_foreign(made(tmp_path, text), options)) == [
        (3_000_000, 0, 0, 8, 512, READ),
        (5_000_000, 0, 0, 16, 1024, WRITE),
    ]
    with pytest.raises(FlextraceError, match="--columns names whence; the columns are when, what"):
        read_foreign(made(tmp_path, text), ReadOptions("csv", columns={"start": "whence"}))
    with pytest.raises(FlextraceError, match="no column for start among when, what"):
        read_foreign(made(tmp_path, text), ReadOptions("csv"))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "7,10,vol,R,8,4096\n",
            r"expected 7 fields: tid \(integer\),timestamp_us \(number\),volume,op,lba \(integer\)",
        ),
        ("7,10,vol,K,8,4096,1\n", "expected an operation"),
        ("7,10,vol,R,8,,1\n", "expected a size of at most"),
        ("7,10,vol,R,8,9,-1\n", "expected 7 fields"),
    ],
)
def test_bad_lines_of_a_table(tmp_path, line, message):
    with pytest.raises(FlextraceError, match=rf"line 5: {message}"):
        characterize.open(made(tmp_path, TABLE + line))


def test_a_device_may_be_called_by_any_number(tmp_path):
    called = ["4294967295", "4294967296", "7340031123456789", "12345678901234567890", "9" * 40]
    called += ["4096:0", "8:1048576", f"{'9' * 40}:1"]
    rows = "".join(f"{at},R,{name},0,512\n" for at, name in enumerate([*called, "4095:1048575"]))
    path = made(tmp_path, f"start,op,device,offset,bytes\n{rows}")
    frame = pd.read_csv(path, dtype={"device": str})
    frame.to_parquet(tmp_path / "x.parquet")
    for file in (path, tmp_path / "x.parquet"):
        trace = characterize.open(file)
        assert trace.blocks["device"].tolist() == [2**32 - 1, *range(1, 8), 2**32 - 1]
        assert [trace.device_name(device) for device in range(1, 8)] == called[1:]


def test_no_two_devices_are_one(tmp_path):
    """Some of which have a number, and some a name that gets one, or is none for its length."""
    called = ["2", "vol-a", "vol-b", "1", "3", "12345678901", "vol-a", "1", "4"]
    rows = "".join(f"{at},R,{name},0,512\n" for at, name in enumerate(called))
    trace = characterize.open(made(tmp_path, f"start,op,device,offset,bytes\n{rows}"))
    devices = trace.blocks["device"].tolist()
    assert len(set(devices)) == len(set(called)) == len(set(zip(devices, called, strict=True)))
    named = [trace.device_name(device) for device in devices]
    assert [name.removeprefix("0:") for name in named] == called
    assert workload_of(trace, "block").unique_bytes == 512 * len(set(called))


def test_a_path_ends_where_its_line_does(tmp_path):
    """Also where lines are parsed by their pattern, since one of them is malformed."""
    path = made(tmp_path, "start,op,offset,bytes,file,path\r\n1,R,0,1,7,/a b\r\nmalformed\r\n2,R,0,1,8,/c\r\n")
    assert read_foreign(path, ReadOptions(skip_bad=True)).paths == {7: "/a b", 8: "/c"}


def test_a_path_that_no_trace_has_room_for_is_refused(tmp_path):
    for size in (2**16 - 1, 2**16):
        path, output = made(tmp_path, f"start,op,path,offset,bytes\n1,R,{'x' * size},0,1\n"), tmp_path / "o.iotrace"
        assert main(["import", str(path), "-o", str(output), "--force"]) == (size >= 2**16)
    assert characterize.open(output).paths == {1: "x" * (2**16 - 1)}


@pytest.mark.parametrize("called", [["sda", "1", "0:2", "sdb", "2", "7340031123456789"], ["3", "sda", "2", "sdb", "1"]])
def test_names_and_numbers_of_devices_are_told_apart(tmp_path, called):
    rows = "".join(f"{at},R,{name},0,512\n" for at, name in enumerate(2 * called))
    trace = characterize.open(made(tmp_path, f"start,op,device,offset,bytes\n{rows}"))
    numbers = trace.blocks["device"].tolist()
    assert len(set(numbers)) == len(called)
    assert numbers[len(called) :] == numbers[: len(called)]
    names = [trace.device_name(number) for number in numbers[: len(called)]]
    assert all(name in (own, f"0:{own}") for name, own in zip(names, called, strict=True))


def test_operations_of_one_moment_stay_in_order(tmp_path):
    """Of a table in seconds: each write is synced before the next one."""
    rows = "".join(f"{at // 6},{'WRITE' if at % 2 else 'fsync'},/a,{4096 * at},4096\n" for at in range(24))
    path = made(tmp_path, f"start,op,path,offset,bytes\n{rows}")
    pd.read_csv(path).to_parquet(tmp_path / "x.parquet")
    for file in (path, tmp_path / "x.parquet"):
        trace = characterize.open(file)
        both = pd.concat([trace.io.assign(data=True), trace.fileops.assign(data=False)])
        ordered = both.sort_values(["start_ns", "data"], ascending=[True, False], kind="stable")
        assert ordered["data"].tolist() == [False, True] * 12
        assert (ordered["start_ns"] // 10**9).tolist() == [at // 6 for at in range(24)]


def test_parquet_is_the_same_table(tmp_path):
    path = tmp_path / "x.parquet"
    pd.read_csv(made(tmp_path, TABLE)).to_parquet(path)
    assert rows_of(characterize.open(path)) == rows_of(characterize.open(made(tmp_path, TABLE)))
    pd.read_csv(made(tmp_path, TABLE)).assign(op="K").to_parquet(path)
    with pytest.raises(FlextraceError, match=r"line 1: expected an operation.*'volume': 'vol-a'"):
        characterize.open(path)
    assert main(["import", str(path), "-o", str(tmp_path / "o.iotrace"), "--skip-bad"]) == 1


def test_a_cell_that_is_no_number_is_named_by_its_column(tmp_path):
    path = tmp_path / "x.parquet"
    pd.read_csv(made(tmp_path, TABLE)).astype({"lba": str}).replace({"lba": {"8": "eight"}}).to_parquet(path)
    with pytest.raises(FlextraceError, match=r"rows 1 to .*: column lba is to be integer and holds .*string: .*eight"):
        characterize.open(path)


def test_a_name_of_two_columns_is_refused(tmp_path):
    path = made(tmp_path, "start,op,offset,bytes,offset\n3,R,0,512,4096\n")
    with pytest.raises(FlextraceError, match="two columns named offset"):
        read_foreign(path, ReadOptions("csv"))
    path = made(tmp_path, "start,op,offset,bytes,note,note\n3,R,4096,512,a,b\n")
    assert len(read_foreign(path, ReadOptions("csv")).blocks) == 1


def test_parquet_with_times_of_day(tmp_path):
    frame = pd.DataFrame(
        {
            "ts": pd.to_datetime(["2020-01-01", "2020-01-02"]),
            "op": ["r", "w"],
            "offset": [0, 512],
            "length": [512, 1024],
        }
    )
    frame.to_parquet(tmp_path / "x.parquet")
    starts = characterize.open(tmp_path / "x.parquet").blocks["start_ns"].tolist()
    assert starts == [1577836800 * 10**9, 1577923200 * 10**9]
