# SPDX-License-Identifier: Apache-2.0
"""Files that were damaged at random: either their lines are read, or they are told; nothing else happens."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from characterize.errors import FlextraceError
from characterize.formats.foreign import read_foreign
from characterize.formats.reading import ReadOptions
from characterize.layout import RecordKind
from tests.traces.block_events import BLKPARSE, PERF, two_cpus
from tests.traces.foreign_traces import EXPECTED, FIO_LOG, STRACE_LOG, TABLE, vscsi

pytestmark = pytest.mark.parallel

FILES = {name: text.encode() for name, (text, _) in EXPECTED.items()}
FILES |= {"csv": TABLE.encode(), "blkparse": BLKPARSE.encode(), "perf": PERF.encode(), "fio": FIO_LOG.encode()}
FILES |= {"strace": STRACE_LOG.encode(), "blktrace": two_cpus()[0], "vscsi": vscsi(2, [(0x28, 4096, 77, 1000, 31)] * 9)}
BYTES = st.one_of(st.sampled_from(b"0123456789,. \n\"'()[]-+<>=\\\0"), st.integers(0, 255))
EDITS = st.lists(
    st.tuples(st.floats(0, 1, exclude_max=True), st.sampled_from(["replace", "insert", "delete", "cut"]), BYTES)
)


def edited(content, edits):
    for place, how, byte in edits:
        at = int(place * len(content))
        if how == "cut":
            content = content[: max(at, 1)]
        else:
            middle = b"" if how == "delete" else bytes([byte])
            content = content[:at] + middle + content[at + (how != "insert") :]
    return content


def attempt(path, options):
    """The trace, or what was said instead."""
    try:
        return read_foreign(path, options), ""
    except FlextraceError as error:
        return None, str(error)


@pytest.mark.parametrize("name", FILES)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=60)
@given(EDITS)
def test_a_damaged_file_is_read_or_told(tmp_path, name, edits):
    path = tmp_path / "x"
    path.write_bytes(edited(FILES[name], edits))
    trace, error = attempt(path, ReadOptions(name, skip_bad=True))
    if trace is None:
        assert str(path) in error
        return
    bad = trace.header.metadata["imported"].get("bad_lines", 0)
    assert sum(trace.header.lost.values()) == bad
    assert sum(len(trace.arrays[kind]) for kind in (RecordKind.IO, RecordKind.FILEOP, RecordKind.BLOCK)) > 0
    strictly, error = attempt(path, ReadOptions(name))
    assert (strictly is None) == (bad > 0)
    assert bad == 0 or ": expected " in error
