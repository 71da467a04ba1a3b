# SPDX-License-Identifier: Apache-2.0
"""For which share of the time between two calls a thread had a processor, against the thread's own clock."""

import sys

import numpy as np
import pandas as pd
import pytest

import characterize
from characterize.layout import PROCESSOR_SHARE_ALL, PROCESSOR_SHARE_NONE, Source
from tests.truths.told import run_recorder

pytestmark = pytest.mark.records

# Writes 31 times, computes and sleeps between, and tells the shares of the time in which it had a processor. Beside it,
# on the same processor, another process computes all the time, or none does.
PROGRAM = """
import os, sys, time
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
other = os.fork() if sys.argv[2] == "crowded" else None
while other == 0:
    pass
shares = []
wall, had = time.monotonic_ns(), time.thread_time_ns()
for number in range(31):
    until = time.thread_time_ns() + 2_000_000 * (number % 4)
    while time.thread_time_ns() < until:
        pass
    time.sleep(0.005 * (number % 3))
    shares.append((time.thread_time_ns() - had) / (time.monotonic_ns() - wall))
    os.pwrite(file, b"x" * 4099, 0)
    wall, had = time.monotonic_ns(), time.thread_time_ns()
print(*shares, flush=True)
if other:
    os.kill(other, 9)
    os.wait()
"""


@pytest.mark.parametrize("place", ["alone", "crowded"])
def test_the_share_of_a_processor_is_that_of_the_thread_s_clock(tmp_path, place):
    trace = tmp_path / "t.iotrace"
    command = [sys.executable, "-u", "-c", PROGRAM, str(tmp_path / "f"), place]
    done = run_recorder(trace, *command, options=("--layer=vfs", f"--path={tmp_path}"))
    assert done.returncode == 0, done.stderr
    told = np.array([float(line) for line in done.stdout.split()])
    recorded = characterize.open(trace)
    assert recorded.header.lost == {}
    writes = recorded.io[recorded.io["asked_bytes"] == 4099]
    assert len(writes) == len(told) == 31
    share = (writes["processor_share"] - PROCESSOR_SHARE_NONE) / (PROCESSOR_SHARE_ALL - PROCESSOR_SHARE_NONE)
    # On some virtual machines tracepoints go by unseen now and then (docs/decisions/0006).
    measured = (writes["processor_share"] > 0).to_numpy()
    assert measured.sum() >= 28
    off = np.abs(share.to_numpy() - told)[measured]
    # A thread can lose its processor between its look at the clocks and the call.
    assert np.median(off) < 0.01
    assert (off < 0.05).sum() >= measured.sum() - 4
    computes_only = measured & (np.arange(31) % 3 == 0) & (np.arange(31) % 4 > 0)
    assert place == "alone" or share[computes_only].median() < 0.9


def test_the_first_call_of_a_thread_has_none(tmp_path):
    trace = tmp_path / "t.iotrace"
    command = ["sh", "-c", "cat /etc/passwd; cat /etc/passwd"]
    assert run_recorder(trace, *command, options=("--layer=vfs",)).returncode == 0
    recorded = characterize.open(trace)
    calls = recorded.io["source"] == Source.SYSCALL
    assert (recorded.io["processor_share"][~calls] == 0).all()
    both = pd.concat([recorded.io[calls], recorded.fileops]).sort_values("start_ns")
    assert both["thread"].nunique() == 3
    first = both.groupby("thread").cumcount() == 0
    assert (both["processor_share"][first] == 0).all()
    assert (both["processor_share"][~first] > 0).mean() > 0.9
