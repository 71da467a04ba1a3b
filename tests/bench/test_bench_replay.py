# SPDX-License-Identifier: Apache-2.0
"""What bench-replay measures with: lateness from a recording made by hand, and one list for the engine and for fio."""

import math
import shutil

import numpy as np
import pandas as pd
import pytest

import characterize
from tests.bench.load import Load, Result
from tests.bench.replay_applications import ORIGINAL, THINK, Unrecorded, originals_apart, unrecorded_elapsed_s
from tests.bench.replay_lateness import lateness_ns, summary_of
from tests.bench.replay_list import ReplayList, Requests, make_list
from tests.traces.made_trace import made_trace, read
from tests.truths.straced import needs_engine, needs_strace, strace

pytestmark = pytest.mark.parallel

US = 1000
EACH = 500


@pytest.fixture
def plan(tmp_path):
    """Two threads with a request every 100 us each."""
    due_ns = np.stack([np.arange(EACH) * 100 * US, np.arange(EACH) * 100 * US + 50 * US])
    return ReplayList(
        tmp_path / "list.iotrace", [], tmp_path / "image", due_ns, np.arange(2 * EACH).reshape(2, EACH) * 4096
    )


def recording_of(plan, start_ns, duration_ns, path):
    """The recording of a replay of the list that began these requests at these times."""
    io = [
        read(int(plan.offsets[thread, at]), 4096, int(start_ns[thread, at]), int(duration_ns[thread, at]),
             thread=70 + thread, file=5 + thread)
        for thread in range(2)
        for at in range(EACH)
    ]  # fmt: skip
    paths = {5: str(plan.image / "f00000001"), 6: str(plan.image / "f00000002")}
    return characterize.write(made_trace(io, files=[{"file": 5}, {"file": 6}], paths=paths), path)


def test_lateness_by_hand(plan, tmp_path):
    start = plan.due_ns + 7_000_000_000  # the clock of the recording is not that of the list
    duration = np.full_like(start, 10 * US)
    duration[0, 300] = 250 * US  # the next two are due before it ends, the third is not
    start[0, 301] += 150 * US + 3 * US  # began 3 us after it could
    duration[0, 301] = 20 * US
    start[0, 302] += 73 * US  # and this one as soon as it could
    start[1, 400] += 40 * US
    late, behind = lateness_ns(recording_of(plan, start, duration, tmp_path / "r.iotrace"), plan)
    assert not (tmp_path / "r.iotrace").exists()
    assert sorted(late[late != 0].tolist()) == [3 * US, 40 * US]
    assert sorted(behind[behind != 0].tolist()) == [40 * US, 73 * US, 153 * US]
    assert behind[2 * 301] == 153 * US  # by due time


def test_drift_is_what_the_last_are_further_behind_than_the_first(plan, tmp_path):
    start = plan.due_ns + np.arange(EACH) * 2 * US  # loses 2 us at each
    late, behind = lateness_ns(recording_of(plan, start, np.full_like(start, US), tmp_path / "r.iotrace"), plan)
    summary = summary_of(late, behind)
    assert summary["drift_us"] == pytest.approx(2 * (EACH - 5), abs=2)
    assert summary["behind_p99_us"] == pytest.approx(2 * 0.99 * EACH, abs=3)
    assert summary["max_us"] == 101  # after the end of the one before, where that is what it had to wait for


def test_another_list_in_the_recording_is_refused(plan, tmp_path):
    plan.offsets[1, 3] += 4096
    path = recording_of(plan, plan.due_ns, np.ones_like(plan.due_ns), tmp_path / "r.iotrace")
    plan.offsets[1, 3] -= 4096
    with pytest.raises(RuntimeError, match="500 requests"):
        lateness_ns(path, plan)


@needs_engine
@needs_strace
@pytest.mark.skipif(not shutil.which("fio"), reason="fio is not installed")
@pytest.mark.parametrize("read", [True, False])
def test_the_engine_and_fio_do_the_same_list(tmp_path, read):
    plan = make_list(Requests(threads=2, read=read, size_bytes=8192, file_bytes=1 << 20), tmp_path / "list", 2 * 101)
    call = "pread64" if read else "pwrite64"
    for command in (plan.engine_command(), plan.fio_command("--ioengine=psync", "--replay_no_stall=1")):
        done, calls = strace(command, tmp_path / "log", call)
        assert done.returncode == 0, done.stdout + done.stderr
        calls = [one for one in calls if one.file.startswith("f0000000")]
        for thread in range(2):
            own = [one.numbers for one in calls if one.file == f"f{thread + 1:08d}"]
            assert own == [[8192, offset] for offset in plan.offsets[thread].tolist()]


def test_how_long_an_original_takes_without_a_recorder():
    """Of a load with rates the recorded time by how much faster it was; of one without, what its command took."""
    runs = [Unrecorded(7.0, "120"), Unrecorded(9.0, "80")]
    load = Load("a load", "operations", 5, [], lambda told: Result(float(told), 1))
    assert unrecorded_elapsed_s(load, 3.0, "60", runs) == pytest.approx((1.5 + 2.25) / 2)
    load = Load("a load", "operations", 5, [], None)
    assert unrecorded_elapsed_s(load, 3.0, "", runs) == 8.0


def test_how_far_originals_lie_apart():
    """By hand: 3 and 2 s are 50 % apart, 2 and 4 s 100 %; replays, and what no original has, do not count."""
    columns = ["round", "replay", "elapsed_s", "read_mean_us", "write_mean_us", "sync_mean_us"]
    rows = [
        (1, ORIGINAL, 2.0, 10.0, 5.0, math.nan),
        (0, ORIGINAL, 3.0, 10.0, 5.0, math.nan),
        (2, ORIGINAL, 4.0, 10.0, 10.0, math.nan),
        (0, THINK, 9.0, 1.0, 1.0, 1.0),
    ]
    apart = originals_apart(pd.DataFrame(rows, columns=columns))
    assert apart.to_dict("index") == {
        "elapsed_s": {"median": pytest.approx(75), "largest": pytest.approx(100)},
        "read_mean_us": {"median": 0, "largest": 0},
        "write_mean_us": {"median": pytest.approx(50), "largest": pytest.approx(100)},
    }
    assert originals_apart(pd.DataFrame(rows[:1], columns=columns)).empty
