# SPDX-License-Identifier: Apache-2.0
"""The distributions of how late and how far behind operations began, which the result has in powers of two."""

import bisect
import itertools
import json
import math
import subprocess

import pytest

import characterize
from tests.runs.running_replay import lines_and_document, stop_for
from tests.traces.made_trace import made_trace, read
from tests.truths.straced import ENGINE, needs_engine

pytestmark = needs_engine

PAGE = 4096


def regular(place, count, gap_ns):
    io = [read(PAGE * at, PAGE, 1000 + gap_ns * at, 1000) for at in range(count)]
    made = made_trace(io, files=[{"file": 1, "size_bytes": PAGE * count}])
    return characterize.write(made, place / "regular.iotrace")


def check_buckets(times, due):
    """They are of powers of two, add up, and hold the percentiles, which come from finer classes."""
    below, counts = times["buckets"]["below_ns"], times["buckets"]["counts"]
    assert sum(counts) == times["count"] == due
    assert min(counts) > 0
    assert below == sorted(set(below))
    assert all(bound.bit_count() == 1 for bound in below)
    reached = list(itertools.accumulate(counts))
    for name, fraction in (("p50_ns", 0.5), ("p90_ns", 0.9), ("p99_ns", 0.99), ("max_ns", 1)):
        bound = below[bisect.bisect_left(reached, math.ceil(fraction * due))]
        assert bound // 2 <= times[name] < bound


@pytest.mark.parametrize("engine", ["sync", "io_uring", "null"])
def test_they_are_of_all_operations_that_were_due(tmp_path, engine):
    path = regular(tmp_path, 53, 2_000_000)
    command = [ENGINE, path, f"--engine={engine}", *([f"--directory={tmp_path / 'image'}"] * (engine != "null"))]
    for timing, names in (("recorded", ("lateness", "behind")), ("think", ("lateness",)), ("asap", ())):
        done = subprocess.run([*command, f"--timing={timing}"], capture_output=True, text=True, check=False, timeout=60)
        accuracy = json.loads(done.stdout)["accuracy"]
        assert [name for name in ("lateness", "behind") if name in accuracy] == list(names)
        for name in names:
            check_buckets(accuracy[name], 53)


def test_a_stop_of_the_engine_is_in_the_buckets_of_its_length(tmp_path):
    """Of half a second, in which an operation is due every 10 ms: one could have begun, all others are behind."""
    path, stop_s, limit_ns = regular(tmp_path, 103, 10_000_000), 0.5, 1 << 28
    command = [ENGINE, path, "--engine=null", "--timing=recorded", "--interval-ms=20"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as engine:
        assert engine.stdout.readline().startswith('{"t_s"')
        stop_for(engine, stop_s)
        out = engine.communicate(timeout=60)[0]
    accuracy = lines_and_document(out)[1]["accuracy"]
    # Of a longer stop more are.
    for name, least in (("lateness", 1), ("behind", int((stop_s - limit_ns / 1e9) / 0.01) - 1)):
        check_buckets(accuracy[name], 103)
        below, counts = accuracy[name]["buckets"]["below_ns"], accuracy[name]["buckets"]["counts"]
        assert sum(count for bound, count in zip(below, counts, strict=True) if bound > limit_ns) >= least
