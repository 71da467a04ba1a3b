# SPDX-License-Identifier: Apache-2.0
"""The extended parameters, computed by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from characterize.characterization import characterize
from characterize.extended import cold_frac, extended_of
from characterize.layout import NOT_MEASURED_U32, BlockFlag, HeaderFlag, IoFlag
from characterize.requests import requests_of
from characterize.response_time import syncs_of
from tests.traces.made_trace import made_trace, read, write

pytestmark = pytest.mark.parallel

OPEN, TRUNCATE, FALLOCATE = 1, 6, 7
KEEP_SIZE, COLLAPSE_RANGE, ZERO_RANGE, INSERT_RANGE = 0x01, 0x08, 0x10, 0x20
BLOCK = 4096


def extended(trace):
    return extended_of(trace, requests_of(trace), syncs_of(trace))


def appended(io, size=0, fileops=(), **file):
    trace = made_trace(list(io), fileops=list(fileops), files=[{"file": 1, "size_bytes": size, **file}])
    return extended(trace)["appendFrac"]


def test_appended_bytes_are_those_behind_the_end():
    # 50 of the first 100 bytes extend the 50-byte file, none of the next, all of the last (beyond a hole).
    rows = [write(0, 100, 0), write(20, 60, 1), write(1000, 40, 2)]
    assert appended(rows, size=50) == pytest.approx(90 / 200)


def test_reads_do_not_count_and_change_nothing():
    assert appended([read(0, 100, 0), write(0, 100, 1)], size=0) == 1


@pytest.mark.parametrize(
    ("fileop", "expected"),
    [
        ({"op": TRUNCATE, "argument": 0}, 1),
        ({"op": TRUNCATE, "argument": 60}, 0.4),
        ({"op": TRUNCATE, "argument": 0, "result": -1}, 0),
        ({"op": OPEN, "flags": int(IoFlag.TRUNCATED), "argument": 7}, 1),
        ({"op": OPEN, "flags": int(IoFlag.CREATED), "argument": 7}, 1),
        ({"op": OPEN, "argument": 7}, 0),
        ({"op": FALLOCATE, "flags": COLLAPSE_RANGE << 16, "argument": 0, "length": 30}, 0.3),
        ({"op": FALLOCATE, "flags": INSERT_RANGE << 16, "argument": 0, "length": 30}, 0),
    ],
)
def test_sizes_follow_file_operations(fileop, expected):
    rows = [write(0, 100, 5)]
    assert appended(rows, size=100, fileops=[{"start_ns": 1, **fileop}]) == pytest.approx(expected)


@pytest.mark.parametrize(("mode", "expected"), [(0, 0), (ZERO_RANGE, 0), (KEEP_SIZE, 1), (KEEP_SIZE | ZERO_RANGE, 1)])
def test_preallocation_grows_a_file_unless_it_keeps_the_size(mode, expected):
    operation = {"op": FALLOCATE, "flags": mode << 16, "argument": 50, "length": 50, "start_ns": 1}
    assert appended([write(0, 100, 5)], size=0, fileops=[operation]) == expected


def test_operations_are_taken_in_the_order_of_their_starts():
    assert appended([write(0, 100, 5)], size=100, fileops=[{"op": TRUNCATE, "argument": 0, "start_ns": 9}]) == 0


def test_block_devices_never_grow():
    rows = [write(1 << 30, 4096, 5), write(0, 4096, 6)]
    assert appended(rows, size=0, type=2) == 0
    truncating = {"op": OPEN, "flags": int(IoFlag.TRUNCATED), "start_ns": 1}
    hole = {"op": FALLOCATE, "flags": COLLAPSE_RANGE << 16, "length": 30, "start_ns": 2}
    assert appended(rows, size=1 << 40, type=2, fileops=[truncating, hole]) == 0


def test_files_of_unknown_size_are_left_out():
    trace = made_trace([write(0, 10, file=1), write(0, 90, file=2)], files=[{"file": 1, "size_bytes": 10}])
    assert extended(trace)["appendFrac"] == 0
    trace = made_trace([write(0, 10)])
    assert math.isnan(extended(trace)["appendFrac"])


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 10), st.integers(1, 2)), min_size=1, max_size=30))
def test_appended_bytes_against_a_size_that_is_followed(rows):
    sizes, total = {1: 10, 2: 0}, 0
    for offset, size, file in rows:
        total += sum(1 for byte in range(offset, offset + size) if byte >= sizes[file])
        sizes[file] = max(sizes[file], offset + size)
    trace = made_trace(
        [write(offset, size, start, file=file) for start, (offset, size, file) in enumerate(rows)],
        files=[{"file": 1, "size_bytes": 10}, {"file": 2}],
    )
    assert extended(trace)["appendFrac"] == pytest.approx(total / sum(size for _, size, _ in rows))


def cold(io, *files):
    trace = made_trace(list(io), files=list(files))
    return cold_frac(trace, requests_of(trace))


def test_cold_bytes_by_hand():
    """File 1 is a quarter resident, file 2 not at all; what was touched before does not count, nor a written block."""
    rows = [
        read(0, 2 * BLOCK, 0),  # 8192 fresh bytes
        read(0, 2 * BLOCK, 1),  # none
        write(4 * BLOCK, 10, 2),  # touches block 4
        read(4 * BLOCK, BLOCK, 3),  # none
        read(5 * BLOCK + 100, BLOCK, 4),  # blocks 5 and 6: 4096 fresh bytes
        read(0, 1000, 5, file=2),  # 1000 fresh bytes
        read(1000, 1000, 6, file=2),  # 1000 more of the same block
        read(500, 1000, 7, file=2),  # none
    ]
    files = (
        {"file": 1, "size_bytes": 16 * BLOCK, "resident_bytes": 4 * BLOCK},
        {"file": 2, "size_bytes": 5000, "resident_bytes": 0},
    )
    share, measured = cold(rows, *files)
    assert share == pytest.approx((0.75 * (8192 + 4096) + 2000) / (2 * 8192 + 4096 + 4096 + 3000))
    assert measured == 1


def test_cold_of_an_empty_file_and_of_a_warm_one():
    assert cold([read(0, 100)], {"file": 1, "size_bytes": 0, "resident_bytes": 0}) == (1, 1)
    assert cold([read(0, 100)], {"file": 1, "size_bytes": 100, "resident_bytes": 4096}) == (0, 1)


def test_cold_where_residency_was_not_measured():
    share, measured = cold([read(0, 100)], {"file": 1, "size_bytes": 100})
    assert math.isnan(share)
    assert measured == 0
    rows = [read(0, 100), read(0, 300, 1, file=2)]
    files = ({"file": 1, "size_bytes": 100}, {"file": 2, "size_bytes": 300, "resident_bytes": 0})
    assert cold(rows, *files) == (1, 0.75)


def test_cold_is_what_was_recorded_as_missed_at_the_first_touch():
    """A cache that is too small misses the same bytes again: that is in missFrac, and not cold."""
    rows = [
        read(0, BLOCK, 0, missed_bytes=BLOCK),
        read(BLOCK, BLOCK, 1, missed_bytes=0),  # was cached before the trace, whatever the FILE record says
        read(0, BLOCK, 2, missed_bytes=BLOCK),
    ]
    file = {"file": 1, "size_bytes": 2 * BLOCK, "resident_bytes": 0}
    assert cold(rows, file) == (pytest.approx(1 / 3), 1)
    trace = made_trace(rows, files=[file])
    assert extended(trace)["missFrac"] == pytest.approx(2 / 3)
    assert extended(trace)["cacheHitFrac"] == pytest.approx(1 / 3)


@pytest.mark.parametrize("step", [1, 100, 1000, 4096, 5000, 65536])
def test_one_pass_over_a_cold_file_is_all_cold_in_any_steps(step):
    size = 40_000
    steps = [(at, min(step, size - at)) for at in range(0, size, step)]
    rows = [read(at, count, start, missed_bytes=count) for start, (at, count) in enumerate(steps)]
    assert cold(rows) == (1, 1)
    rows = [read(at, count, start) for start, (at, count) in enumerate(steps)]
    assert cold(rows, {"file": 1, "size_bytes": size, "resident_bytes": 0}) == (1, 1)


def test_cold_of_recorded_and_estimated_reads_together():
    """100 bytes recorded as missed, 300 of a file that was not in the cache, 600 of a file nothing is known of."""
    rows = [read(0, 100, 0, missed_bytes=100), read(0, 300, 1, file=2), read(0, 600, 2, file=3)]
    assert cold(rows, {"file": 2, "size_bytes": 300, "resident_bytes": 0}) == (1, 0.4)


def test_misses_of_a_parent_do_not_count_for_a_trace_that_has_not_run():
    trace = made_trace([read(0, 100, missed_bytes=100)], flags=HeaderFlag.PLANNED)
    result = extended(trace)
    assert math.isnan(result["missFrac"])
    assert math.isnan(result["coldFrac"])


def test_syncs_of_every_kind():
    """msync with MS_ASYNC (1) does nothing in Linux."""
    kinds = [{"op": 3}, {"op": 4}, {"op": 5}, {"op": 15, "file": 0}, {"op": 16, "flags": 4 << 16}]
    trace = made_trace([write(0, 100)], fileops=[*kinds, {"op": 16, "flags": 1 << 16}, {"op": 12}, {"op": 13}])
    assert extended(trace)["syncFrac"] == 5


def test_cold_without_reads():
    assert all(math.isnan(value) for value in cold([write(0, 100)], {"file": 1, "resident_bytes": 0}))


def test_shares_by_hand():
    direct, stable = int(IoFlag.DIRECT), int(IoFlag.DSYNC)
    trace = made_trace(
        [
            read(0, 100, 0, flags=direct, missed_bytes=30),
            read(0, 100, 1, missed_bytes=0),
            read(0, 50, 2),  # not measured
            write(0, 400, 3, flags=direct | stable),
            write(0, 600, 4),
        ],
        fileops=[{"op": 3}, {"op": 4}, {"op": 5}, {"op": 3, "result": -5}, {"op": 2}],
        files=[{"file": 1, "size_bytes": 500}],
    )
    result = extended(trace)
    assert result["missFrac"] == pytest.approx(30 / 200)
    assert result["cacheHitFrac"] == 1
    assert result["syncFrac"] == pytest.approx(3 / 2)
    assert result["bytesPerSync"] == pytest.approx(1000 / 3)
    assert result["syncWriteFrac"] == 0.5
    assert result["directFrac"] == pytest.approx(2 / 5)
    assert result["appendFrac"] == pytest.approx(100 / 1000)
    assert result["overwriteFrac"] == pytest.approx(900 / 1000)


def test_nothing_is_made_up():
    result = extended(made_trace())
    assert all(math.isnan(value) for value in result.values())
    result = extended(made_trace([read(0, 10)], fileops=[{"op": 3}]))
    assert all(math.isnan(result[name]) for name in ("syncFrac", "appendFrac", "syncWriteFrac", "missFrac", "coldFrac"))


def test_block_layer_by_hand():
    flags = int(BlockFlag.READAHEAD | BlockFlag.META)
    blocks = [
        {"op": 1, "bytes": 4096, "start_ns": 3, "cause": 9, "flags": flags},
        {"op": 1, "bytes": 8192, "start_ns": 2, "flags": int(BlockFlag.META)},
        {"op": 2, "bytes": 4096, "start_ns": 1, "cause": 8, "flags": int(BlockFlag.FUA)},
        {"op": 2, "bytes": 4096, "start_ns": 1, "cause": 8, "flags": flags, "status": 10},
    ]
    trace = made_trace(blocks=blocks)
    result = characterize(trace).layers["block"].extended
    assert result == pytest.approx(
        {"attributedFrac": 0.5, "readaheadFrac": 1 / 3, "metadataFrac": 2 / 3, "fuaFrac": 1 / 3}
    )


def test_what_an_imported_trace_does_not_say_is_unknown():
    blocks = [{"op": 1, "bytes": 4096, "flags": int(BlockFlag.META)}, {"op": 2, "bytes": 4096}]
    io = [read(0, 10, flags=int(IoFlag.DIRECT)), write(0, 10)]
    for format_name, flags in (("mqsim", {}), ("blktrace", {"flags": "known"})):
        foreign = made_trace(io, blocks=blocks, metadata={"imported": {"format": format_name}, **flags})
        layers = characterize(foreign).layers
        shares = [layers["block"].extended[name] for name in ("metadataFrac", "fuaFrac")]
        shares += [layers["vfs"].extended[name] for name in ("directFrac", "syncWriteFrac")]
        assert shares == pytest.approx([0.5, 0.0, 0.5, 0.0] if flags else [math.nan] * 4, nan_ok=True)
        assert math.isnan(layers["block"].extended["attributedFrac"])


def test_the_width_of_an_interval_of_offsets_is_no_missed_bytes():
    """Of a trace whose recorder was killed before it had worked the offset out."""
    told = read(0, 100, 0, missed_bytes=25)
    inferred = read(100, 100, 1, missed_bytes=5000, flags=int(IoFlag.OFFSET_INFERRED))
    trace = made_trace([told, inferred], files=[{"file": 1, "size_bytes": 200}], flags=HeaderFlag.INCOMPLETE)
    assert extended(trace)["missFrac"] == 0.25
    assert requests_of(trace)["missed_bytes"].tolist() == [25, NOT_MEASURED_U32]
