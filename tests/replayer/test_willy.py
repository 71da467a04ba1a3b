# SPDX-License-Identifier: Apache-2.0
"""Willy's traces have the parameters that were asked for, and his LRU stack is one."""

from __future__ import annotations

import json
import re
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from characterize import trace as trace_file
from characterize.errors import FlextraceError
from characterize.layout import Fileop, HeaderFlag, IoOp, RecordKind
from characterize.workload import Workload, workload_of
from flextrace.main import main
from replayer.flexible.place_stack import at_depth, depth_of, empty_stack, touch
from replayer.synthetic.request_sizes import SIZE_FAMILIES, draw_sizes
from replayer.willy import DEPTH_FAMILIES, make_trace, requests_default, requests_needed

pytestmark = pytest.mark.parallel

KIB, MIB = 1024, 1024**2
NOMINAL = Workload(4 * MIB, 0.5, 0.5, 16 * KIB, 2)


def assert_achieved(trace, wanted):
    achieved = workload_of(trace)
    assert achieved.unique_bytes == pytest.approx(wanted.unique_bytes, rel=0.01)
    assert achieved.seq_frac == pytest.approx(wanted.seq_frac, abs=0.02)
    assert achieved.read_frac == pytest.approx(wanted.read_frac, abs=0.01)
    assert achieved.size_mean == pytest.approx(wanted.size_mean, rel=0.01)
    assert achieved.process_num == wanted.process_num
    io = trace.arrays[RecordKind.IO]
    assert len(np.unique(io["thread"])) == wanted.process_num
    size = dict(zip(trace.files["file"], trace.files["size_bytes"], strict=True))
    assert (io["offset"] + io["result"] <= np.array([size[file] for file in io["file"]])).all()


# ---- the five, over a grid ----


@pytest.mark.parametrize("depth", DEPTH_FAMILIES)
@pytest.mark.parametrize("size", SIZE_FAMILIES)
@pytest.mark.parametrize("seq_frac", [0.0, 0.1, 0.5, 0.77, 0.95, 0.99])
def test_achieves_the_five_with_the_fewest_requests_and_with_more(depth, size, seq_frac):
    tried = 0
    for unique in (512 * KIB, 1_000_000, 5 * MIB):
        for mean in (512, 3000, 4096, 4400, 16 * KIB, 100_000):
            for processes in (1, 2, 5):
                places = unique / processes / mean
                if places < 4 or seq_frac > 1 - 1.5 / places:
                    continue
                wanted = Workload(unique, seq_frac, 0.51, mean, processes)
                for requests in (requests_needed(wanted), 3 * requests_needed(wanted)):
                    assert_achieved(make_trace(wanted, requests=requests, depth=depth, size=size), wanted)
                    tried += 1
    assert tried >= 10


def test_purely_sequential():
    wanted = Workload(4 * MIB, 1.0, 0.5, 4 * KIB, 2)
    for size in SIZE_FAMILIES:
        assert_achieved(make_trace(wanted, requests=requests_needed(wanted), size=size), wanted)


@pytest.mark.parametrize("requests", [5000, 20_000])
@pytest.mark.parametrize("depth", DEPTH_FAMILIES)
def test_a_scan_starts_over_at_the_end_of_its_file_only(depth, requests):
    """Elsewhere it would meet what it has just read."""
    wanted = Workload(64 * MIB, 1.0, 1.0, 128 * KIB, 1)
    trace = make_trace(wanted, requests=requests, depth=depth, allow_partial=True)
    io, size = trace.arrays[RecordKind.IO], trace.files["size_bytes"].iloc[0]
    offsets, ends = io["offset"], io["offset"] + io["result"]
    starts = 1 + np.flatnonzero(offsets[1:] != ends[:-1])
    assert (ends[starts - 1] == size).all()
    assert (offsets[starts] == 0).all()
    assert len(starts) == (len(io) * wanted.size_mean - 1 + offsets[0]) // size


@settings(max_examples=60, deadline=None)
@given(
    unique=st.integers(256 * KIB, 16 * MIB),
    seq_frac=st.floats(0, 0.9),
    read_frac=st.floats(0, 1),
    mean=st.integers(700, 8000),
    processes=st.integers(1, 3),
    seed=st.integers(0, 1000),
)
def test_achieves_the_five_anywhere(  # noqa: PLR0917
    unique, seq_frac, read_frac, mean, processes, seed
):
    wanted = Workload(unique, seq_frac, read_frac, mean, processes)
    if seq_frac > 1 - 1.5 * mean * processes / unique:
        return
    assert_achieved(make_trace(wanted, requests=requests_needed(wanted), seed=seed), wanted)


def test_thesis_workloads():
    # Table 3.1: Andrew, Sdet, TPC-B, ccm, venus.
    for wanted in (
        Workload(4.7e6, 0.77, 0.54, 3 * KIB, 1),
        Workload(8e6, 0.48, 0.56, 2.4 * KIB, 4),
        Workload(47.9e6, 0.01, 0.51, 4.4 * KIB, 1),
        Workload(11.6e6, 0.91, 0.51, 32 * KIB, 1),
        Workload(55.2e6, 0.43, 0.65, 456 * KIB, 1),
    ):
        assert_achieved(make_trace(wanted, requests=requests_needed(wanted)), wanted)


# ---- refusals ----


def test_too_few_requests_say_how_many_are_needed():
    wanted = Workload(1024 * MIB, 0.5, 0.5, 4 * KIB, 1)
    with pytest.raises(FlextraceError, match=str(requests_needed(wanted))) as raised:
        make_trace(wanted, requests=100)
    assert raised.value.exit_code == 2
    partial = make_trace(wanted, requests=1000, allow_partial=True)
    assert partial.declared["uniqueBytes"] == 1024 * MIB == partial.files["size_bytes"].sum()
    assert workload_of(partial).seq_frac == pytest.approx(0.5, abs=0.02)
    assert any(str(requests_needed(wanted)) in warning for warning in partial.warnings)


def test_more_requests_than_memory_holds_are_not_made(monkeypatch):
    monkeypatch.setattr("replayer.flexible.planned.memory_bytes", lambda: 64 * 5000)
    make_trace(NOMINAL, requests=5000)
    with pytest.raises(FlextraceError, match=r"5001 requests take 312\.6 KiB of memory while they are made"):
        make_trace(NOMINAL, requests=5001)


def test_impossible_sequentiality_gives_the_reachable_one():
    wanted = Workload(64 * KIB, 1.0, 0.5, 16 * KIB, 1)
    with pytest.raises(FlextraceError, match=r"0\.75"):
        make_trace(wanted, requests=400)
    assert workload_of(make_trace(wanted, requests=400, allow_partial=True)).seq_frac == pytest.approx(0.75, abs=0.01)


@pytest.mark.parametrize(
    "changes",
    [
        {"seq_frac": 1.1},
        {"read_frac": float("nan")},
        {"process_num": 0},
        {"process_num": 1.5},
        {"size_mean": 0},
        {"size_mean": 4 * MIB},
        {"unique_bytes": 0},
    ],
)
def test_refuses_parameters_out_of_range(changes):
    with pytest.raises(FlextraceError):
        make_trace(NOMINAL.replace(**changes), requests=5000)


# ---- the shape of the trace ----


def test_trace_is_as_the_contract_says():
    trace = make_trace(NOMINAL, requests=1000, seed=3)
    assert trace.header.flags == HeaderFlag.UNTIMED
    assert trace.declared == {**NOMINAL.as_document()}
    assert trace.files["path"].tolist() == ["willy.1", "willy.2"]
    assert (trace.files["size_bytes"] == 2 * MIB).all()
    assert (trace.files["resident_bytes"] == 2 * MIB).all()
    assert (trace.files["flags"] == 0).all()
    assert trace.tasks["comm"].tolist() == ["willy", "willy"]
    for thread, io in trace.io.groupby("thread"):
        assert io["start_ns"].tolist() == list(range(500))
        assert (io["file"] == thread).all()
        assert (io["process"] == thread).all()
        assert (io["offset"] % 4096 == 0).all()
        assert (io["result"] % 4096 == 0).all()
    assert trace.io["id"].is_unique


def test_equal_seed_gives_an_equal_trace():
    for depth in DEPTH_FAMILIES:
        one, same, other = (make_trace(NOMINAL, requests=1000, depth=depth, seed=seed) for seed in (1, 1, 2))
        assert all((one.arrays[kind] == same.arrays[kind]).all() for kind in (RecordKind.IO, RecordKind.FILE))
        assert (one.io["offset"] != other.io["offset"]).any()


def test_syncs_follow_writes():
    trace = make_trace(NOMINAL, requests=1000, sync_frac=0.3)
    fields = ["thread", "start_ns", "kind", "op"]
    arrays = [trace.arrays[kind][fields].astype("u8,u8,u1,u1") for kind in (RecordKind.IO, RecordKind.FILEOP)]
    operations = np.concatenate(arrays)
    operations.sort(order=["f0", "f1"])
    assert len(np.unique(operations[["f0", "f1"]])) == len(operations)
    syncs = np.flatnonzero((operations["f2"] == RecordKind.FILEOP) & (operations["f3"] == Fileop.FDATASYNC))
    writes = (trace.io["op"] == IoOp.WRITE).sum()
    assert len(syncs) == round(0.3 * writes)
    assert (operations["f2"][syncs - 1] == RecordKind.IO).all()
    assert (operations["f3"][syncs - 1] == IoOp.WRITE).all()


# ---- sizes ----


@pytest.mark.parametrize("mean", [1.0, 1.3, 2.0, 16.0, 250.5])
@pytest.mark.parametrize("family", SIZE_FAMILIES)
def test_sizes_sum_up_exactly(family, mean):
    total = round(mean * 2000)
    sizes = draw_sizes(family, 2000, total, 10_000, np.random.default_rng(0))
    assert sizes.sum() == total
    assert sizes.min() >= 1


def test_size_families_have_their_spread():
    generator = np.random.default_rng(0)
    bernoulli = draw_sizes("bernoulli", 20_000, 16 * 20_000, 10_000, generator)
    assert bernoulli.std() / bernoulli.mean() == pytest.approx(1, abs=0.02)
    assert len(np.unique(bernoulli)) <= 4
    binomial = draw_sizes("binomial", 20_000, 16 * 20_000, 10_000, generator)
    # 1 + Binomial(30, 1/2): variance 7.5.
    assert binomial.var() == pytest.approx(7.5, rel=0.03)
    assert set(draw_sizes("fixed", 1000, 16_000, 10_000, generator)) == {16}


def test_binomial_sizes_of_many_units_take_no_memory_for_what_never_comes():
    tracemalloc.start()
    drawn = draw_sizes("binomial", 100, 100 << 24, 1 << 31, np.random.default_rng(0))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert drawn.mean() == 1 << 24
    assert drawn.std() == pytest.approx((1 << 25) ** 0.5 / 2, rel=0.05)
    # One number for each of the sizes up to twice the mean would be 256 MiB.
    assert peak < 32 * MIB


# ---- the LRU stack ----


def naive_depths(blocks):
    """Depth of every reuse, by the definition: a list whose head is the most recent block."""
    stack, depths = [], []
    for block in blocks:
        if block in stack:
            depths.append(stack.index(block))
            stack.remove(block)
        stack.insert(0, block)
    return np.array(depths)


@pytest.mark.parametrize(("depth", "spread"), [("uniform", 256 / 12**0.5), ("binomial", 256**0.5 / 2)])
def test_reuse_depth_has_the_mean_and_the_spread_of_its_family(depth, spread):
    wanted = Workload(256 * 4096, 0.0, 0.5, 4096, 1)
    io = make_trace(wanted, requests=12_000, depth=depth, size="fixed").io
    depths = naive_depths((io["offset"] // 4096).tolist())[1000:]
    # A request is never sequential to the one before it here, and coverage takes 256 requests of 12 000.
    assert depths.mean() == pytest.approx(128, rel=0.02)
    assert depths.std() == pytest.approx(spread, rel=0.05)


def test_stack_finds_the_block_at_every_depth():
    generator = np.random.default_rng(1)
    stack = empty_stack(40)
    naive: list[int] = []
    for block in generator.integers(0, 40, 2000).tolist():
        touch(stack, block)
        if block in naive:
            naive.remove(block)
        naive.insert(0, block)
        assert stack.state[1] == len(naive)
        depth = int(generator.integers(len(naive)))
        assert at_depth(stack, depth) == naive[depth]
        assert depth_of(stack, naive[depth]) == depth


def test_first_touches_are_spread_over_file_and_trace():
    io = make_trace(Workload(16 * MIB, 0.0, 0.5, 4096, 1), requests=16_384).io
    blocks = (io["offset"] // 4096).to_numpy()
    first = np.sort(np.unique(blocks, return_index=True)[1])
    assert np.corrcoef(first, blocks[first])[0, 1] == pytest.approx(0, abs=0.05)
    # A quarter of the 4 requests per block: independent random access would have touched 1 - exp(-1) of the blocks.
    assert (first < len(blocks) / 4).mean() == pytest.approx(0.63, abs=0.03)


@pytest.mark.parametrize("size", SIZE_FAMILIES)
@pytest.mark.parametrize("unique", [2.0**33, 3.3e9])
def test_no_request_is_larger_than_what_one_system_call_moves(size, unique):
    wanted = Workload(unique, 0.3, 0.5, 2**30, 1)
    trace = make_trace(wanted, requests=requests_needed(wanted), size=size)
    io = trace.arrays[RecordKind.IO]
    assert io["result"].min() > 0
    assert io["result"].max() <= 2**31 - 4096
    assert (io["asked_bytes"] == io["result"]).all()
    assert io["result"].mean() == pytest.approx(2**30, rel=0.01)


# ---- the command ----

OPTIONS = [
    "--unique-bytes",
    "4MiB",
    "--seq-frac",
    "50%",
    "--read-frac",
    "0.5",
    "--size-mean",
    "16K",
    "--process-num",
    "2",
]


def test_command_writes_the_trace_and_prints_what_it_achieved(tmp_path, capsys):
    path = tmp_path / "w.iotrace"
    assert main(["willy", "-o", str(path), *OPTIONS, "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "flextrace.willy/1"
    assert document["wanted"] == NOMINAL.as_document()
    assert document["achieved"] == workload_of(trace_file.open(path)).as_document()
    assert document["requests"] == requests_default(NOMINAL)
    assert document["made"]["command"][0] == "flextrace"
    assert main(["willy", "-o", str(path), *OPTIONS]) == 2
    assert "--force" in capsys.readouterr().err
    assert main(["willy", "-o", str(path), *OPTIONS, "--force", "--requests", "600"]) == 0
    assert "uniqueBytes" in capsys.readouterr().out
    assert len(trace_file.open(path).requests) == 600


@pytest.mark.parametrize(
    "wrong", ["--seq-frac 2", "--size-mean 16parsec", "--requests 3", "--requests 9999999999", "--process-num 0"]
)
def test_command_refuses_bad_input(tmp_path, capsys, wrong):
    path = tmp_path / "w.iotrace"
    assert main(["willy", "-o", str(path), *OPTIONS, *wrong.split()]) == 2
    assert capsys.readouterr().err.startswith("flextrace willy: ")
    assert not path.exists()


def test_the_unique_bytes_that_are_advised_are_taken(tmp_path, capsys):
    options = ["--seq-frac", "0", "--read-frac", "1", "--size-mean", "4100", "--process-num", "999"]
    command = ["willy", "-o", str(tmp_path / "w.iotrace"), *options, "--unique-bytes"]
    assert main([*command, "1M"]) == 2
    advised = re.search("raise uniqueBytes to (.*?) bytes", capsys.readouterr().err)[1]
    assert main([*command, advised]) == 0
