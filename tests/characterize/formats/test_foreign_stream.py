# SPDX-License-Identifier: Apache-2.0
"""Traces of other tools as streams: the same numbers as of the whole trace in memory, and memory of any length."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

import characterize as package
from characterize.characterization import characterize
from characterize.errors import FlextraceError
from characterize.formats import lines
from characterize.formats.foreign_stream import stream_foreign
from characterize.formats.reading import ReadOptions
from characterize.formats.reordering import Reordering
from characterize.grouping import Grouping
from characterize.layout import RecordKind
from characterize.stream import TIMED, Chunk, open_stream
from tests.traces.foreign_traces import EXPECTED, made
from tests.truths.whole_document import document

pytestmark = pytest.mark.parallel

BLKPARSE = "".join(
    f"  8,0 1 {at} 0.{at * 1009 + later:09d} 77 {letter} WS {at % 97 * 8} + 8 {end}\n"
    for at in range(499)
    for letter, later, end in (("Q", 0, "[fio]"), ("D", 400, "[fio]"), ("C", 7919, "[0]"))
)
STRACE = '10 1700000000.000000 openat(AT_FDCWD, "/data/x", O_RDWR) = 3 <0.000010>\n' + "".join(
    f'10 1700000000.{at * 131:06d} {call}(3, "ab"..., 512, {at % 31 * 512}) = 512 <0.000005>\n'
    for at in range(1, 500)
    for call in ("pread64", "pwrite64")
)
FIO = "fio version 3 iolog\n0 /data/a add\n1 /data/a open\n" + "".join(
    f"{at + 2} /data/a {('read', 'write')[at % 2]} {at % 89 * 512} 1024\n" for at in range(499)
)
TABLE = "start_ns,path,op,offset,bytes,latency_ns\n" + "".join(
    f"{(at * 7919) % 100_003},/f{at % 5},{'RW'[at % 2]},{at % 89 * 512},1024,{at}\n" for at in range(997)
)
TEXTS = {name: text * 67 for name, (text, _) in EXPECTED.items() if name != "cloudphysics"} | {
    "blkparse": BLKPARSE,
    "strace": STRACE,
    "fio": FIO,
    "csv": TABLE,
}


@pytest.mark.parametrize("kept", [0, 1 << 20])
@pytest.mark.parametrize("name", TEXTS)
def test_the_same_numbers_as_of_the_whole(tmp_path, name, kept, monkeypatch):
    """Blocks of few lines, more disorder than the window has room for, and malformed lines."""
    monkeypatch.setattr(lines, "BLOCK_BYTES", 512)
    monkeypatch.setattr(Reordering.__init__, "__defaults__", (16,))
    text = TEXTS[name]
    middle = text.index("\n", len(text) // 2) + 1
    path = made(tmp_path, f"{text[:middle]}what is this 5\n{text[middle:]}")
    options = ReadOptions(skip_bad=True)
    whole = package.open(path, options)
    stream = stream_foreign(path, options, kept)
    assert document(characterize(stream)) == document(characterize(whole))
    assert stream.facts.header == whole.header
    assert stream.facts.paths == whole.paths
    assert stream.facts.files.equals(whole.files)
    parts = [part for part in stream.chunks() if isinstance(part, Chunk)]
    assert len(parts) > 3
    for kind in TIMED:
        expected = whole.arrays[kind][np.argsort(whole.arrays[kind]["start_ns"], kind="stable")]
        assert b"".join(part.arrays[kind].tobytes() for part in parts) == expected.tobytes()
    assert sum(map(len, whole.arrays.values())) == 1 + sum(
        len(whole.arrays[kind]) for kind in (*TIMED, RecordKind.FILE, RecordKind.TASK)
    )


def test_parquet_comes_in_batches(tmp_path, monkeypatch):
    monkeypatch.setattr("characterize.formats.parquet_table.BATCH_ROWS", 50)
    table = csv.read_csv(made(tmp_path, TABLE))
    parquet.write_table(table, tmp_path / "a.parquet")
    whole = document(characterize(package.open(tmp_path / "a.parquet")))
    assert document(characterize(stream_foreign(tmp_path / "a.parquet", kept_records=0))) == whole


def test_options_reach_every_pass(tmp_path):
    path = made(tmp_path, EXPECTED["spc"][0])
    stream = stream_foreign(path, ReadOptions("spc", sector_bytes=4096), 0)
    for _ in range(2):
        blocks = [part.arrays[RecordKind.BLOCK] for part in stream.chunks() if isinstance(part, Chunk)]
        assert np.concatenate(blocks)["sector"].tolist() == [20941264 * 8, 20939840 * 8, 56]


def test_groups_take_one_pass_more(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "BLOCK_BYTES", 512)
    path = made(tmp_path, TEXTS["msr"])
    grouping = Grouping("device", 1.0, ("block",))
    whole = characterize(package.open(path), grouping=grouping)
    assert document(characterize(stream_foreign(path, kept_records=0), grouping=grouping)) == document(whole)
    assert [group.key for group in whole.groups if group.by == "device"] == [1, 2, 3]


@pytest.mark.parametrize("change", ["longer", "shorter"])
def test_a_file_that_changes_meanwhile(tmp_path, change, monkeypatch):
    monkeypatch.setattr(lines, "BLOCK_BYTES", 512)
    monkeypatch.setattr(Reordering.__init__, "__defaults__", (16,))
    path = made(tmp_path, TEXTS["spc"])
    stream = stream_foreign(path, kept_records=0)
    path.write_text(TEXTS["spc"] * 2 if change == "longer" else TEXTS["spc"][: len(TEXTS["spc"]) // 2 + 9])
    with pytest.raises(FlextraceError, match=r"x.txt changed while it was read|x.txt line \d+: expected"):
        list(stream.chunks())


def long_csv(path: Path, count: int) -> Path:
    """Requests of 4 KiB to 4001 places in the order of their starts, as Alibaba's traces have them."""
    at = np.arange(count)
    columns = [at % 3, np.where(at % 5, "R", "W"), at * 7919 % 4001 * 4096, np.full(count, 4096), 1577808000000000 + at]
    table = pa.table({str(number): column for number, column in enumerate(columns)})
    csv.write_csv(table, path, csv.WriteOptions(include_header=False, quoting_style="none"))
    return path


def peak_bytes(path: Path) -> int:
    """Memory that characterizing a file took at the most, by the kernel's high-water mark of that process alone."""
    code = (
        "import sys; from pathlib import Path; from flextrace.main import main; assert not main(sys.argv[1:]); "
        "print(next(line for line in Path('/proc/self/status').read_text().splitlines() if line.startswith('VmHWM')))"
    )
    command = [sys.executable, "-c", code, "characterize", "--layer", "block", str(path)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return int(said.splitlines()[-1].split()[1]) << 10


def test_memory_does_not_grow_with_the_length(tmp_path):
    """Both are longer than what is kept at once; the additional 2.5 million records alone would take 160 MB."""
    short = peak_bytes(long_csv(tmp_path / "short.csv", 2_500_000))
    long = peak_bytes(long_csv(tmp_path / "long.csv", 5_000_000))
    assert long - short < 60e6


def test_disorder_is_said_and_mended(tmp_path, monkeypatch):
    monkeypatch.setattr(Reordering.__init__, "__defaults__", (16,))
    monkeypatch.setattr(lines, "BLOCK_BYTES", 512)
    text = "".join(f"0,{8 * at},4096,R,{(997 - at) / 1000:.3f}\n" for at in range(997))
    stream = open_stream(made(tmp_path, text), foreign=ReadOptions("spc"))
    starts = np.concatenate([p.arrays[RecordKind.BLOCK]["start_ns"] for p in stream.chunks() if isinstance(p, Chunk)])
    assert starts.tolist() == [at * 10**6 for at in range(1, 998)]
    assert (
        "behind their place in the order of the starts; characterize keeps them in memory" in stream.facts.warnings[0]
    )
