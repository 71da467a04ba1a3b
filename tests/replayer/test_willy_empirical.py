# SPDX-License-Identifier: Apache-2.0
"""Willy with the depths and sizes of a trace: both are distributed as there; the times of last use tell."""

import json

import numpy as np
import pytest
from scipy.stats import ks_2samp

import characterize
from characterize.errors import FlextraceError
from characterize.layout import BlockOp, HeaderFlag, RecordKind
from characterize.workload import FIELD_OF, PARAMETERS, Workload, workload_of
from flextrace.main import main
from replayer.synthetic.source_shape import source_shape_of
from replayer.willy import make_trace, requests_needed
from tests.traces.made_trace import made_trace, read, write

pytestmark = pytest.mark.parallel

PAGE = 4096
MIB = 1 << 20
FILE_PAGES = 4096


def source(seed=1, count=4001, unit=PAGE):
    """Two threads on a file each, of which few places are hot; requests are 1, 4 and 16 units."""
    random = np.random.default_rng(seed)
    rows, end = [], [0, 0]
    for at in range(count):
        thread = int(random.integers(2))
        size = int(random.choice([1, 4, 16], p=[0.6, 0.3, 0.1])) * unit
        if random.random() < 0.6:
            end[thread] = int((FILE_PAGES - 16) * random.random() ** 4) * PAGE
        make = read if random.random() < 0.7 else write
        rows.append(make(end[thread], size, 10 * at, file=thread + 1, thread=thread + 1))
        end[thread] += size
    return made_trace(rows, files=[{"file": file, "size_bytes": FILE_PAGES * PAGE} for file in (1, 2)])


def depth_shares(trace):
    """Of the first page of every request that is not sequential and was there before, as share of all pages."""
    last, now, depths, end = np.zeros(2 * FILE_PAGES * 8), 0, [], {}  # moment of the last use of every page
    number = {}
    for request in trace.requests.itertuples():
        pages = range(request.offset // PAGE, -(-(request.offset + request.bytes) // PAGE))
        rows = [number.setdefault((request.file, page), len(number)) for page in pages]
        stream = request.thread, request.file
        if end.get(stream) != request.offset and last[rows[0]]:
            depths.append(int((last > last[rows[0]]).sum()))
        end[stream] = request.offset + request.bytes
        for row in rows:
            now += 1
            last[row] = now
    return np.array(depths) / len(number)


def distance(one, other):
    """Kolmogorov-Smirnov."""
    return ks_2samp(one, other).statistic


def classes(trace, times=1.0, unit=PAGE):
    """Which of the source's three sizes every request has, 0 to 2; they are four times as large as the one before."""
    return np.rint(np.log(trace.requests["bytes"].to_numpy() / (unit * times)) / np.log(4)).astype(int)


CHANGES = {
    "as it is": {},
    "three times the data": {"unique_bytes": 3.0},
    "twice as large": {"size_mean": 2.0},
    "other shares of five": {"process_num": 5.0, "seq_frac": 0.1, "read_frac": 0.25},
}


@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
def test_depths_and_sizes_are_those_of_the_trace(changes):
    parent = source()
    before = workload_of(parent)
    larger, times = (changes.get(name, 1.0) for name in ("unique_bytes", "size_mean"))
    scaled = {"unique_bytes": larger * before.unique_bytes, "size_mean": times * before.size_mean}
    wanted = before.replace(**{"process_num": 2.0, **changes, **scaled})
    count = 4 * requests_needed(wanted)
    made = make_trace(wanted, requests=count, depth="empirical", size="empirical", like=source_shape_of(parent))
    after = workload_of(made)
    for name in PARAMETERS:
        field = FIELD_OF[name]
        assert getattr(after, field) == pytest.approx(getattr(wanted, field), rel=0.0025, abs=0.005), name
    assert distance(depth_shares(made), depth_shares(parent)) < 0.05
    assert distance(classes(made, times), classes(parent)) < 0.02
    plain = make_trace(wanted, requests=count)
    assert distance(depth_shares(plain), depth_shares(parent)) > 0.4
    assert distance(classes(plain, times), classes(parent)) > 0.2


def test_sizes_of_sectors_stay_so():
    parent = source(unit=512)
    made = make_trace(workload_of(parent), size="empirical", like=source_shape_of(parent))
    assert made.header.metadata["align_bytes"] == 512
    assert distance(classes(made, unit=512), classes(parent, unit=512)) < 0.02


def test_block_requests_are_a_source_as_well():
    random = np.random.default_rng(1)
    rows = [
        {
            "op": BlockOp.READ,
            "start_ns": at,
            "duration_ns": 1,
            "sector": int(997 * random.random() ** 4) << 3,
            "bytes": PAGE,
        }
        for at in range(2003)
    ]
    shape = source_shape_of(made_trace(blocks=rows))
    wanted = Workload(997.0 * PAGE, 0.0, 1.0, PAGE, 1.0)
    made = make_trace(wanted, requests=2003, depth="empirical", size="empirical", like=shape)
    assert set(made.requests["bytes"]) == {PAGE}
    stack, depths = [], []
    for row in rows:
        if row["sector"] in stack:
            depths.append(len(stack) - 1 - stack.index(row["sector"]))
            stack.remove(row["sector"])
        stack.append(row["sector"])
    assert distance(depth_shares(made), np.array(depths) / len(stack)) < 0.05


def test_the_verb(tmp_path, capsys):
    parent, out = tmp_path / "parent.iotrace", tmp_path / "out.iotrace"
    characterize.write(source(), parent)
    five = [
        "--unique-bytes",
        "2MiB",
        "--requests",
        "1501",
        "--seq-frac",
        "0.4",
        "--read-frac",
        "0.7",
        "--size-mean",
        "14K",
        "-o",
        str(out),
    ]
    empirical = ["--depth-family", "empirical", "--size-family", "empirical"]
    for wrong in (empirical, ["--like", str(parent)], [*empirical, "--like", str(tmp_path / "none")]):
        assert main(["willy", *five, *wrong]) in {1, 2}
        assert not out.exists()
    assert "none" in capsys.readouterr().err
    assert main(["willy", *five, *empirical, "--like", str(parent), "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["made"]["like"]["path"] == str(parent)
    assert (document["made"]["depth"], document["made"]["size"]) == ("empirical", "empirical")
    assert distance(depth_shares(characterize.open(out)), depth_shares(source())) < 0.05


def test_a_source_that_lacks_records_is_told(tmp_path, capsys):
    trace, count = source(), 251
    trace.header.lost[RecordKind.IO] = count
    trace.header.flags |= HeaderFlag.LOST
    parent, out = characterize.write(trace, tmp_path / "lossy.iotrace"), tmp_path / "out.iotrace"
    five = ["--unique-bytes", "2M", "--seq-frac", "0.4", "--read-frac", "0.7", "--size-mean", "14K"]
    assert main(["willy", *five, "--size-family", "empirical", "--like", str(parent), "-o", str(out)]) == 3
    assert f"{count} IO" in capsys.readouterr().err
    assert out.exists()


def test_what_is_used_once_has_no_depths():
    parent = made_trace([read(2 * PAGE * at, PAGE, at) for at in range(101)])
    with pytest.raises(FlextraceError, match="no depths to draw from"):
        make_trace(Workload(MIB, 0.1, 1.0, PAGE, 1.0), depth="empirical", like=source_shape_of(parent))
    with pytest.raises(FlextraceError, match="say of which trace"):
        make_trace(Workload(MIB, 0.1, 1.0, PAGE, 1.0), size="empirical")
