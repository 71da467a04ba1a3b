# SPDX-License-Identifier: Apache-2.0
"""Flexible traces of block requests: each parameter at its target, the others held, as the block layer counts them."""

from __future__ import annotations

import numpy as np
import pytest

import characterize
from characterize.characterization import characterize as characterize_trace
from characterize.counting.intervals import overlap_at_starts
from characterize.errors import FlextraceError
from characterize.layout import BlockFlag, BlockOp, HeaderFlag, RecordKind
from characterize.requests import requests_of
from characterize.stream import stream_of
from characterize.text import render
from characterize.trace import Trace
from characterize.workload import FIELD_OF, PARAMETERS, workload_of_records
from flextrace.main import main
from replayer.alter import Relative, alter
from replayer.devices.block_lanes import BlockOperations
from replayer.flexible.draft import UnreachableError
from tests.traces.made_trace import made_trace, read

pytestmark = pytest.mark.parallel

COUNT = 3001


def disk(seed: int = 1, count: int = COUNT) -> Trace:
    """Runs of 1 to 8 requests of 4 to 64 KiB at drawn places, a third of them written, and a flush now and then."""
    random = np.random.default_rng(seed)
    rows, sector = [], 0
    for at in range(count):
        size = int(random.integers(1, 17)) << 12
        if random.random() < 0.4:
            sector = int(random.zipf(1.3) % 5003) << 7
        way = {"op": BlockOp.WRITE, "flags": BlockFlag.FUA} if random.random() < 1 / 3 else {"op": BlockOp.READ}
        times = {"start_ns": 10_000 * (at + 1), "duration_ns": int(random.integers(1_000, 60_000))}
        rows.append({**way, **times, "sector": sector, "bytes": size})
        sector += size >> 9
        if at % 97 == 0:
            rows.append({"op": BlockOp.FLUSH, "start_ns": 10_000 * (at + 1) + 5, "duration_ns": 700})
    return made_trace(blocks=rows)


def measured(trace: Trace) -> dict[str, float]:
    """The five of the block layer, where number in flight is that of the schedule."""
    requests = requests_of(trace, "block")
    in_flight = overlap_at_starts(requests["start_ns"].to_numpy(), requests["end_ns"].to_numpy())
    workload = workload_of_records(trace, "block").replace(process_num=float(in_flight.max()))
    return {name: getattr(workload, FIELD_OF[name]) for name in PARAMETERS}


CHANGES = {
    "uniqueBytes": (0.5, 0.9, 2),
    "seqFrac": (0.6, 1.3),
    "readFrac": (0.5, 1.3),
    "sizeMean": (0.5, 2, 4),
    "processNum": (0.2, 0.5, 3, 10),
}


@pytest.mark.parametrize(("name", "factor"), [(name, factor) for name in CHANGES for factor in CHANGES[name]])
def test_a_parameter_is_changed_and_the_others_are_held(name, factor):
    trace = disk()
    before = measured(trace)
    altered, manifest = alter(trace, {name: Relative(factor)})
    assert not len(altered.arrays[RecordKind.IO])
    assert altered.header.flags & HeaderFlag.PLANNED
    after = measured(altered)
    for other in PARAMETERS:
        wanted = before[other] * (factor if other == name else 1)
        wanted = round(wanted) if other == "processNum" else wanted
        tolerance = {"abs": 0.01} if other in ("seqFrac", "readFrac") else {"rel": 0.01}
        assert after[other] == pytest.approx(wanted, **tolerance), other
        assert getattr(manifest.achieved, FIELD_OF[other]) == pytest.approx(after[other]), other
    blocks = altered.arrays[RecordKind.BLOCK]
    assert (blocks["op"] == BlockOp.FLUSH).sum() == 31
    assert not (blocks["flags"][blocks["op"] == BlockOp.READ] & BlockFlag.FUA).any()
    assert (np.diff(blocks["start_ns"].astype(np.int64)) >= 0).all()


def test_a_factor_of_one_changes_no_record():
    trace = disk()
    for name in PARAMETERS:
        altered, manifest = alter(trace, {name: Relative(1)})
        assert altered.arrays[RecordKind.BLOCK].tobytes() == trace.arrays[RecordKind.BLOCK].tobytes()
        assert manifest.moved == 0
        assert altered.header.metadata["lineage"]["changes"] == {name: "1x"}


def test_the_declared_number_in_flight_is_that_of_the_block_layer():
    altered, _ = alter(disk(count=200), {"processNum": 5})
    result = characterize_trace(altered, chunk_records=50)
    layers = result.as_document()["layers"]
    assert (layers["block"]["parameters"]["processNum"], layers["block"]["declared"]) == (5, ["processNum"])
    assert (layers["vfs"]["parameters"]["processNum"], layers["vfs"]["declared"]) == (None, [])
    assert "declared by its maker" in render(result)
    assert workload_of_records(altered, "block").process_num == 5
    assert np.isnan(workload_of_records(altered).process_num)


def test_who_made_requests_and_what_was_lost_stay():
    lost = {"lost_kind": RecordKind.BLOCK, "start_ns": 10_000, "duration_ns": 7, "lost_count": 3}
    parent = made_trace(
        blocks=[{"op": BlockOp.READ, "bytes": 4096, "start_ns": 9 * at, "thread": 5, "process": 4} for at in range(50)],
        tasks=[{"thread": 5, "process": 4, "comm": b"reader"}],
        gaps=[lost],
        lost={RecordKind.BLOCK: 3},
    )
    altered, _ = alter(parent, {"readFrac": 0.5})
    for kind in (RecordKind.TASK, RecordKind.GAP):
        assert altered.arrays[kind].tobytes() == parent.arrays[kind].tobytes()
    assert set(altered.blocks["thread"]) == {5}
    assert altered.header.count == {RecordKind.TASK: 1, RecordKind.GAP: 1, RecordKind.BLOCK: 50}
    assert altered.header.lost == parent.header.lost


def test_the_number_in_flight_is_that_of_the_lanes_of_a_replay():
    for target in (2, 5, 31):
        found = BlockOperations(stream_of(alter(disk(), {"processNum": target})[0]))
        assert sum(len(io) for io, _ in found) == COUNT
        assert found.lanes in (target, target + 1)  # a flush is in flight beside them


def test_what_block_requests_cannot_say_is_refused_with_the_reason():
    with pytest.raises(FlextraceError, match="nobody is known to think"):
        alter(disk(), {"thinkScale": 2.0})
    with pytest.raises(UnreachableError, match="there are 20 requests"):
        alter(disk(count=20), {"processNum": 21})
    arrivals = disk(count=50)
    arrivals.arrays[RecordKind.BLOCK]["duration_ns"] = 0
    arrivals.header.metadata["durations"] = "unknown"
    with pytest.raises(FlextraceError, match="no durations"):
        alter(arrivals, {"processNum": 2})
    altered, _ = alter(arrivals, {"timeScale": 3.0})
    assert np.ptp(altered.arrays[RecordKind.BLOCK]["start_ns"]) == 3 * np.ptp(
        arrivals.arrays[RecordKind.BLOCK]["start_ns"]
    )


def test_programs_requests_are_altered_where_there_are_any():
    trace = made_trace([read(4096 * at, 4096, 10 * at) for at in range(50)], blocks=[{"op": 1, "bytes": 512}])
    altered, _ = alter(trace, {"readFrac": 0.5})
    assert len(altered.arrays[RecordKind.IO]) == 50


def test_the_verb_and_a_second_alteration(tmp_path, capsys):
    path = characterize.write(disk(), tmp_path / "t.iotrace")
    once, twice = tmp_path / "1.iotrace", tmp_path / "2.iotrace"
    assert main(["alter", str(path), "--process-num", "9", "-o", str(once)]) == 0
    told = capsys.readouterr()
    assert "as fast and wait" in told.out
    assert "--device DEV" in told.err
    assert main(["alter", str(once), "--read-frac", "0.25", "-o", str(twice)]) == 0
    after = measured(characterize.open(twice))
    assert (after["processNum"], after["readFrac"]) == (9, pytest.approx(0.25, abs=0.01))
    assert characterize.open(twice).header.metadata["lineage"]["earlier"]["changes"] == {"processNum": "9.0"}
