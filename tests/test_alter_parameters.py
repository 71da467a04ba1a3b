# SPDX-License-Identifier: Apache-2.0
"""What each alteration promises beyond the five numbers: distances, order, schedules; and that the engine runs them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from characterize import trace as trace_file
from characterize.layout import Fileop, IoOp, RecordKind
from replayer.alter import Relative, alter
from replayer.binaries import find_binary
from replayer.run import replay
from tests.flexible_traces import Recording, database_like, sort_like, willy


def stack_distances(io):
    """Reuse distance of every block in the order of use, by the definition: distinct blocks since its last use."""
    stack, distances = [], []
    for file, offset, size in zip(io["file"], io["offset"], io["result"], strict=True):
        for block in range(offset // 4096, (offset + size - 1) // 4096 + 1):
            if (file, block) in stack:
                distances.append(stack.index((file, block)))
                stack.remove((file, block))
            else:
                distances.append(-1)
            stack.insert(0, (file, block))
    return distances


def spans(trace):
    """Start, end, thread of every operation of a trace, by id."""
    arrays = [trace.arrays[kind] for kind in (RecordKind.IO, RecordKind.FILEOP)]
    return {
        int(row["id"]): (int(row["start_ns"]), int(row["start_ns"] + max(row["duration_ns"], 1)), int(row["thread"]))
        for array in arrays
        for row in array
    }


# ---- seqFrac ----


def test_relabelling_keeps_every_reuse_distance():
    recording = Recording()
    random = np.random.default_rng(0)
    file = recording.file("/data", 64 * 4096)
    for start in random.integers(0, 56, 80).tolist():
        for step in range(random.integers(1, 6)):
            recording.read(1, file, (start + step) * 4096, 4096)
    parent = recording.trace()
    altered, manifest = alter(parent, {"seqFrac": 0.3})
    steps = manifest.notes["seqFrac"]
    assert steps["relabelled_requests"] > 0
    assert steps["exchanged_requests"] == steps["continued_runs"] == 0
    assert stack_distances(altered.io) == stack_distances(parent.io)


# ---- readFrac ----


def test_flips_whole_runs_evenly():
    recording = Recording()
    file = recording.file("/data", 10**9)
    for run in range(200):
        for step in range(1 + run % 4):
            recording.write(1, file, run * 10**6 + step * 4096, 4096)
    parent = recording.trace()
    altered, _ = alter(parent, {"readFrac": 0.5})
    reads = (altered.io["op"] == IoOp.READ).to_numpy()
    run = (altered.io["offset"] // 10**6).to_numpy()
    by_run = [reads[run == number] for number in range(200)]
    # All of a run but for at most one, and half of the runs of every length.
    assert sum(0 < flags.mean() < 1 for flags in by_run) <= 1
    for length in range(1, 5):
        assert np.mean([flags.mean() for flags in by_run if len(flags) == length]) == pytest.approx(0.5, abs=0.05)


def test_reads_are_made_of_writes_to_existing_files_first():
    parent = database_like(200)
    altered, _ = alter(parent, {"readFrac": 0.3})
    assert (altered.files["flags"] == parent.files["flags"]).all()
    altered, _ = alter(parent, {"readFrac": 0.9})
    assert (altered.files["flags"] == 0).sum() > (parent.files["flags"] == 0).sum()


# ---- uniqueBytes, sizeMean ----


def test_more_unique_bytes_keep_hit_ratios_at_a_share_of_them():
    parent = willy(1, "fixed")
    altered, _ = alter(parent, {"uniqueBytes": Relative(2)})
    blocks = {name: trace.requests["bytes"].sum() // 4096 for name, trace in (("parent", parent), ("altered", altered))}
    assert blocks["parent"] == blocks["altered"]
    for share in (0.25, 0.5, 0.75):
        ratio = []
        for trace, unique in ((parent, 2048), (altered, 4096)):
            distances = np.array(stack_distances(trace.io.iloc[1000:]))
            reused = distances[distances >= 0]
            ratio.append((reused < share * unique).mean())
        assert ratio[0] == pytest.approx(ratio[1], abs=0.06)


def test_stretching_keeps_alignment():
    altered, _ = alter(willy(1, "fixed"), {"sizeMean": Relative(1.5)})
    assert (altered.io["offset"] % 4096 == 0).all()
    assert (altered.io["result"] % 4096 == 0).all()


# ---- processNum ----


def test_clones_run_beside_their_originals_on_the_same_data():
    parent = database_like(100)
    altered, manifest = alter(parent, {"processNum": 3})
    assert altered.declared == {"processNum": 3}
    io = altered.io
    threads = io["thread"].unique()
    assert len(threads) == 3
    assert io["process"].nunique() == 3
    for _, mine in io.groupby("thread"):
        assert sorted(zip(mine["file"], mine["offset"], mine["result"], mine["op"], strict=True)) == sorted(
            zip(parent.io["file"], parent.io["offset"], parent.io["result"], parent.io["op"], strict=True)
        )
    moments = (io["start_ns"] + io["duration_ns"] // 2).sample(50, random_state=1)
    end = io["start_ns"] + io["duration_ns"]
    assert max(((io["start_ns"] <= moment) & (end > moment)).sum() for moment in moments) == 3
    # Files are made and removed once.
    for operation in (Fileop.OPEN, Fileop.UNLINK):
        count = [(trace.fileops["op"] == operation).sum() for trace in (parent, altered)]
        assert count[0] <= count[1] <= count[0] + 2
    assert manifest.reuse == pytest.approx(3 * manifest.reuse_before)


def test_merging_keeps_what_was_ordered():
    parent = sort_like(4, 4 << 20)
    before = spans(parent)
    records = [parent.arrays[kind][["id", "file"]] for kind in (RecordKind.IO, RecordKind.FILEOP)]
    everything = np.concatenate(records)
    # File 1 is only read; the others are written by one thread and read by another.
    changed_files = [everything["id"][everything["file"] == file].tolist() for file in range(2, 19)]
    for target in (1, 2, 3):
        altered, _ = alter(parent, {"processNum": target})
        after = spans(altered)
        assert set(after) == set(before)
        threads = {thread for _, _, thread in after.values()}
        assert len(threads) == target
        for thread in threads:
            mine = sorted((start, end) for start, end, own in after.values() if own == thread)
            assert all(first[1] <= second[0] for first, second in itertools.pairwise(mine))
        for data in changed_files:
            for one, other in itertools.permutations(data, 2):
                if before[one][1] <= before[other][0]:
                    assert after[one][1] <= after[other][0]


def test_merging_synthetic_threads_keeps_runs_and_their_order():
    parent = willy(4)
    altered, _ = alter(parent, {"processNum": 2})
    assert altered.io["thread"].nunique() == 2
    for _, mine in altered.io.groupby("thread"):
        assert mine["start_ns"].tolist() == list(range(len(mine)))
    for file, mine in altered.io.groupby("file"):
        assert mine["id"].tolist() == parent.io.loc[parent.io["file"] == file, "id"].tolist()


# ---- the engine ----


@pytest.mark.parametrize(
    "changes",
    [
        {"uniqueBytes": Relative(0.5)},
        {"uniqueBytes": Relative(1.2)},
        {"seqFrac": 0.3},
        {"readFrac": 0.9},
        {"readFrac": 0.1},
        {"sizeMean": Relative(1.5)},
        {"processNum": 1},
        {"processNum": 4},
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["sort", "database", "willy"])
def test_the_engine_repeats_every_operation(kind, changes, tmp_path):
    try:
        find_binary("flextrace-replay")
    except Exception as error:
        pytest.skip(f"the replay engine is not built: {error}")
    parent = sort_like(2, 4 << 20) if kind == "sort" else willy()
    altered, _ = alter(parent, changes)
    path = trace_file.write(altered, tmp_path / "altered.iotrace")
    result = replay(path, tmp_path / "image")
    assert result["trustworthy"], result["reasons"]
    operations = result["operations"]
    assert operations["done"] == operations["records"] == len(altered.io) + len(altered.fileops)
