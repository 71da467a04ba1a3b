# SPDX-License-Identifier: Apache-2.0
"""cut, merge, repeat and clone: parts and sums have the parameters that they must have, and the engine runs them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from characterize import trace as trace_file
from characterize.errors import FlextraceError
from characterize.layout import FileFlag, Fileop, FileType, HeaderFlag, IoFlag, RecordKind
from characterize.workload import workload_of
from flextrace.main import main
from replayer.cut import Selection, cut
from replayer.merge import clone, merge
from replayer.repeat import repeat
from tests.traces.flexible_traces import Recording, database_like, recordings, replay_size_violations, sort_like, willy
from tests.traces.made_trace import made_trace, read
from tests.traces.sound_traces import PAGE, SECOND_NS, assert_replays, assert_sound, log_and_temporary, opens
from tests.truths.straced import needs_engine, op

pytestmark = pytest.mark.parallel

KINDS = (RecordKind.IO, RecordKind.FILEOP, RecordKind.FILE, RecordKind.TASK)


def is_equal(one, other):
    return all(one.arrays[kind].tobytes() == other.arrays[kind].tobytes() for kind in RecordKind if kind in one.arrays)


# ---- nothing changes ----


@pytest.mark.parametrize(
    "make", [lambda: sort_like(2, 2 << 20), lambda: database_like(50), willy], ids=["sort", "database", "willy"]
)
def test_one_copy_or_pass_or_trace_and_a_cut_of_all_keep_every_byte(make, tmp_path):
    parent = make()
    for made in (
        clone(parent, 1),
        repeat(parent, 1),
        merge([parent]),
        cut(parent, Selection(processes=np.unique(parent.io["process"]).tolist())),
    ):
        assert is_equal(made, parent)
        assert made.header.flags == parent.header.flags
        one = trace_file.write(parent, tmp_path / "one", force=True).read_bytes()
        other = trace_file.write(made, tmp_path / "other", force=True).read_bytes()
        end = 4096 + 64 * sum(len(parent.arrays[kind]) for kind in KINDS)
        assert one[4096:end] == other[4096:end]


# ---- clone, merge ----


@pytest.mark.parametrize("copies", [2, 5])
def test_copies_multiply_footprint_and_processes_and_keep_the_rest(copies):
    for parent in (sort_like(2, 2 << 20), database_like(50), willy()):
        before, made = workload_of(parent), clone(parent, copies)
        assert_sound(made)
        assert workload_of(made) == before.replace(
            unique_bytes=copies * before.unique_bytes, process_num=copies * before.process_num
        )
        assert len(set(made.paths.values())) == copies * len(set(parent.paths.values()))
        lineage = made.header.metadata["lineage"]
        assert lineage["options"] == {"copies": str(copies)}
        assert lineage["parents"][0]["parameters"] == before.as_document()


def test_merged_traces_share_nothing_and_begin_together():
    one, other = sort_like(2, 2 << 20), database_like(50)
    made = merge([one, other])
    assert_sound(made)
    parts = [made.io[made.io["id"].isin(ids)] for ids in (one.io["id"], other.io["id"] + one_top(one))]
    assert set(parts[0]["file"]).isdisjoint(parts[1]["file"])
    assert set(parts[0]["thread"]).isdisjoint(parts[1]["thread"])
    begins = [min(made.io["start_ns"][mine.index].min(), made.fileops["start_ns"].min()) for mine in parts]
    assert begins[0] == begins[1]
    before = [workload_of(trace) for trace in (one, other)]
    after = workload_of(made)
    counts = [len(trace.requests) for trace in (one, other)]
    assert after.unique_bytes == sum(workload.unique_bytes for workload in before)
    assert max(workload.process_num for workload in before) < after.process_num
    assert after.process_num <= sum(workload.process_num for workload in before)
    for field in ("seq_frac", "read_frac", "size_mean"):
        mean = np.average([getattr(workload, field) for workload in before], weights=counts)
        assert getattr(after, field) == pytest.approx(mean)


def test_what_one_of_several_traces_does_not_know_the_merged_one_does_not():
    traces = [sort_like(1, 1 << 20) for _ in range(3)]
    traces[0].header.metadata = {"imported": {"format": "strace", "path": "a"}, "flags": "known"}
    traces[1].header.metadata = {"imported": {"format": "strace", "path": "b"}, "durations": "unknown"}
    traces[1].header.metadata["declared"] = {"processNum": 1}
    metadata = merge(traces).header.metadata
    assert metadata["imported"] == {"format": "strace"}
    assert metadata["durations"] == "unknown"
    assert "flags" not in metadata
    assert merge([traces[0], traces[2]]).header.metadata["flags"] == "known"


def one_top(trace):
    return max(trace.io["id"].max(), trace.fileops["id"].max())


def test_clocks_are_kept_where_asked():
    first = made_trace(
        [read(0, PAGE, 5_000, id=1)],
        files=[{"file": 1, "size_bytes": PAGE}],
        tasks=[{"thread": 1, "process": 1}],
        start_monotonic_ns=1_000,
        start_realtime_ns=7 * SECOND_NS,
        end_monotonic_ns=6_000,
        end_realtime_ns=7 * SECOND_NS + 5_000,
    )
    second = made_trace(
        [read(0, PAGE, 90_000, id=1)],
        files=[{"file": 1, "size_bytes": PAGE}],
        tasks=[{"thread": 1, "process": 1}],
        start_monotonic_ns=80_000,
        start_realtime_ns=7 * SECOND_NS + 300,
        end_monotonic_ns=99_000,
        end_realtime_ns=7 * SECOND_NS + 19_300,
    )
    # The second began 300 ns after the first by the clock of the day, and its read 10 000 ns later.
    assert sorted(merge([first, second], "clocks").io["start_ns"]) == [5_000, 1_000 + 300 + 10_000]
    assert sorted(merge([first, second]).io["start_ns"]) == [5_000, 1_000 + 10_000]
    with pytest.raises(FlextraceError, match="it has none"):
        merge([first, sort_like(1, 1 << 20)], "clocks")


def test_traces_with_and_without_times_do_not_mix():
    with pytest.raises(FlextraceError, match="has only an order"):
        merge([willy(), sort_like(1, 1 << 20)])
    merged = merge([willy(2), willy(1, "fixed")])
    assert merged.untimed
    assert merged.declared == {"processNum": 3}


# ---- repeat ----


def test_passes_keep_what_is_only_overwritten_and_renew_what_is_made():
    parent = log_and_temporary()
    made = repeat(parent, 3)
    assert_sound(made)
    before, after = workload_of(parent), workload_of(made)
    temporary = 5 * PAGE
    assert after.unique_bytes == before.unique_bytes + 2 * temporary
    assert (after.read_frac, after.size_mean, after.process_num) == (
        before.read_frac,
        before.size_mean,
        before.process_num,
    )
    # The log gets its size back between two passes.
    log = made.fileops[(made.fileops["op"] == Fileop.TRUNCATE) & (made.fileops["file"] == 1)]
    assert log["argument"].tolist() == [3 * PAGE] * 2
    ends = [parent.io["start_ns"].max() + step for step in (0, 10**9)]
    assert (log["start_ns"] > ends[0]).all()


def test_a_file_that_is_replaced_by_a_rename_is_another_one_in_every_pass(tmp_path):
    recording = Recording()
    target = recording.file("/config", 2 * PAGE)
    temporary = recording.file("/config.new", created=True)
    name = recording.file("/config")
    files = recording.files
    files[-1] = (*files[-1][:3], int(FileFlag.NEW_NAME), *files[-1][4:])
    opens(recording, 1, target)
    recording.read(1, target, 0, 2 * PAGE)
    recording.operate(Fileop.CLOSE, 1, target)
    opens(recording, 1, temporary, flags=int(IoFlag.CREATED))
    recording.write(1, temporary, 0, PAGE)
    recording.operate(Fileop.CLOSE, 1, temporary)
    recording.operate(Fileop.RENAME, 1, temporary, argument=name)
    made = repeat(recording.trace(), 3)
    assert_sound(made)
    assert made.io["file"].nunique() == 6
    assert_replays(made, tmp_path)


@pytest.mark.parametrize("layer", ["vfs", "block"])
def test_as_often_as_there_is_time(layer):
    """A clock of signed nanoseconds ends after 292 years."""
    week_ns = 7 * 24 * 3600 * SECOND_NS
    ends = (0, week_ns)
    operations = {
        "vfs": {"io": [read(0, PAGE, at) for at in ends]},
        "block": {"blocks": [{"op": 1, "bytes": PAGE, "start_ns": at, "duration_ns": 1} for at in ends]},
    }
    trace = made_trace(files=[{"file": 1, "size_bytes": PAGE}], **operations[layer])
    with pytest.raises(FlextraceError, match="292 years, where its clock ends; reachable are 15250 times") as caught:
        repeat(trace, 15_251)
    assert caught.value.exit_code == 2
    if layer == "block":
        made = repeat(trace, 15_250).arrays[RecordKind.BLOCK]
        assert int(made["start_ns"].max()) == 15_249 * (week_ns + 2) + week_ns


# ---- whatever is made ----


@settings(max_examples=25, deadline=None)
@given(trace=recordings(), data=st.data())
def test_whatever_is_made_finds_its_data_and_adds_up(trace, data):
    number = data.draw(st.integers(2, 4))
    edges = sorted(data.draw(st.tuples(st.integers(0, 60_000), st.integers(0, 60_000))))
    before = workload_of(trace)
    cloned, repeated = clone(trace, number), repeat(trace, number)
    assert workload_of(cloned).unique_bytes == number * before.unique_bytes
    assert workload_of(repeated).process_num == before.process_num
    assert before.unique_bytes <= workload_of(repeated).unique_bytes <= number * before.unique_bytes
    made = [cloned, repeated]
    thread = data.draw(st.sampled_from(sorted(trace.io["thread"].unique().tolist())))
    for selection in (Selection(begin_s=edges[0] / 1e9, end_s=edges[1] / 1e9), Selection(threads=[thread])):
        try:
            made.append(cut(trace, selection))
        except FlextraceError as error:
            assert "nothing of" in str(error)  # noqa: PT017 (either outcome is right)
    for one in made:
        assert_sound(one)
        assert replay_size_violations(one) == 0


# ---- the engine ----


@needs_engine
@pytest.mark.parametrize("kind", ["sort", "database", "mixed"])
def test_the_engine_repeats_every_operation(kind, tmp_path):
    parent = {"sort": lambda: sort_like(2, 2 << 20), "database": lambda: database_like(40), "mixed": log_and_temporary}[
        kind
    ]()
    middle = (parent.io["start_ns"].max() - parent.io["start_ns"].min()) / 2 / SECOND_NS
    made = {
        "clone": clone(parent, 3),
        "repeat": repeat(parent, 3),
        "merge": merge([parent, log_and_temporary()]),
        "cut behind": cut(parent, Selection(begin_s=middle)),
        "cut before": cut(parent, Selection(end_s=middle)),
        "repeated cut": repeat(cut(parent, Selection(begin_s=middle)), 2),
        "cloned repeat": clone(repeat(parent, 2), 2),
        "cut repeat": cut(repeat(parent, 2), Selection(begin_s=middle)),
    }
    for trace in made.values():
        assert_sound(trace)
        # A file that was open when the part began is closed in it: the engine has nothing open then.
        open_before = _closes_alone(trace)
        assert_replays(trace, tmp_path, skipped=open_before)


def _closes_alone(trace):
    """Closes of files that are neither opened nor used before in the part."""
    used, alone = set(), 0
    rows = [(row.start_ns, 1, row.file, False) for row in trace.io.itertuples()]
    rows += [(row.start_ns, 0, row.file, row.op == Fileop.CLOSE) for row in trace.fileops.itertuples()]
    for _, _, file, closes in sorted(rows):
        alone += closes and file not in used
        used.add(file)
    return alone


@needs_engine
def test_a_truncation_in_the_place_of_a_removal_is_replayed(tmp_path):
    """readable.py resizes a file instead of removing it where its next life reads first (its UNLINK: TRUNCATE)."""
    from replayer.flexible.draft import Draft  # noqa: PLC0415
    from replayer.flexible.readable import make_readable  # noqa: PLC0415

    recording = Recording()
    file = recording.file("/t", created=True)
    for _ in range(2):
        opens(recording, 1, file, flags=int(IoFlag.CREATED))
        recording.write(1, file, 0, 2 * PAGE)
        recording.read(1, file, 0, PAGE)
        recording.operate(Fileop.CLOSE, 1, file)
        recording.operate(Fileop.UNLINK, 1, file)
    parent = recording.trace()
    draft = Draft.of(parent)
    draft.io["offset"][3] = 2 * PAGE
    make_readable(draft, np.array([1]))
    assert Fileop.TRUNCATE in draft.fileops["op"]
    parent.arrays.update({RecordKind.IO: draft.io, RecordKind.FILEOP: draft.fileops, RecordKind.FILE: draft.files})
    parent.header.flags |= HeaderFlag.PLANNED
    assert_replays(parent, tmp_path)


# ---- the commands ----


def test_commands(tmp_path, capsys):
    parent, other, out = (tmp_path / f"{name}.iotrace" for name in ("parent", "other", "out"))
    trace_file.write(database_like(40), parent)
    trace_file.write(sort_like(2, 1 << 20), other)
    before = workload_of(trace_file.open(parent))
    for words, factor in (
        (["clone", str(parent), "--copies", "2"], 2),
        (["repeat", str(parent), "--times", "2"], 1),
        (["merge", str(parent), str(other)], None),
        (["cut", str(parent), "--to", "1ms"], None),
    ):
        assert main([*words, "-o", str(out), "--force", "--format", "json"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert (document["schema"], document["command"][0]) == ("flextrace.made/1", "flextrace")
        made = trace_file.open(out)
        assert document["parameters"] == workload_of(made).as_document()
        assert made.header.metadata["made_by"] == words[0]
        assert made.header.metadata[f"{words[0]}_command"][0] == "flextrace"
        assert len(document["parents"][0]["parent_sha256"]) == 64
        if factor:
            assert workload_of(made).process_num == factor * before.process_num
        assert main([*words, "-o", str(out)]) == 2
        assert main([*words, "-o", str(parent), "--force"]) == 2
        assert "choose another name" in capsys.readouterr().err
        assert main([*words, "-o", str(out), "--force"]) == 0
        assert "uniqueBytes" in capsys.readouterr().out


def test_operations_on_files_alone_are_to_be_replayed_in_a_directory(tmp_path, capsys):
    files = [{"file": 1, "type": FileType.DIRECTORY}, {"file": 2, "size_bytes": 1 << 12}]
    opened = [op(Fileop.OPEN, 0, file=1), op(Fileop.CLOSE, 1, file=1)]
    trace = made_trace([read(0, 4096, 2, file=2)], fileops=opened, files=files, paths={1: "/d", 2: "/d/f"})
    parent, out = trace_file.write(trace, tmp_path / "parent.iotrace"), tmp_path / "out.iotrace"
    assert main(["cut", str(parent), "--path", "/d", "-o", str(out)]) == 0
    assert "--directory DIR" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", ["cut", "cut --from 2s --to 1s", "clone --copies 0", "clone --copies 5000", "repeat --times 0"]
)
def test_commands_refuse_bad_input(words, tmp_path, capsys):
    parent, out = tmp_path / "parent.iotrace", tmp_path / "out.iotrace"
    trace_file.write(willy(), parent)
    verb, *options = words.split()
    assert main([verb, str(parent), "-o", str(out), *options]) == 2
    assert capsys.readouterr().err.startswith(f"flextrace {verb}: ")
    assert not out.exists()
