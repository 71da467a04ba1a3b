# SPDX-License-Identifier: Apache-2.0
"""A trace with losses: what the totals say stays, as a rule exact, uniqueBytes and seqFrac are marked as too low."""

import json

import numpy as np
import pytest

import characterize as package
from characterize.characterization import characterize
from characterize.cluster.characterize_set import characterize_set
from characterize.layout import HeaderFlag, IoFlag, RecordKind, Source
from characterize.loss import is_lossy
from characterize.stream import open_stream
from characterize.text import render
from characterize.workload import Workload, workload_of
from flextrace.main import main
from replayer.alter import alter
from replayer.merge import merge
from selfscale.comparing.comparison_runs import Setting, application_row
from tests.traces.made_trace import made_trace, read, write

pytestmark = pytest.mark.parallel

LOST = {RecordKind.IO: 100}


def known_from_totals(trace, rule="data"):
    """Parameters that are exact in spite of the losses."""
    return characterize(trace, rule).layers["vfs"].from_totals


def whole_rows():
    """700 reads of 4096 and 300 writes of 1024 bytes, up to two in flight, in a random order."""
    random = np.random.default_rng(5)
    rows = [read(4096 * at, 4096) for at in range(700)] + [write(1024 * at, 1024, file=2) for at in range(300)]
    order = random.permutation(len(rows))
    return [{**rows[at], "start_ns": 10 * place, "duration_ns": 15} for place, at in enumerate(order.tolist())]


def totals_of(rows):
    """What a recorder counts, whether or not the records get through."""
    totals = {"read": {}, "write": {}}
    for row in rows:
        source = totals["read" if row["op"] == 1 else "write"].setdefault(Source(row.get("source", 1)).name.lower(), {})
        for key, add in (("count", 1), ("bytes", row["result"]), ("failed", 0)):
            source[key] = source.get(key, 0) + add
    return totals


def lossy_trace(rows, kept, in_flight_max=2, **header):
    metadata = {"totals": totals_of(rows), "in_flight_max": in_flight_max}
    flags = HeaderFlag.LOST
    return made_trace(
        [row for row, keep in zip(rows, kept, strict=True) if keep], metadata=metadata, flags=flags, **header
    )


@pytest.fixture
def lossy():
    """20 % of the records lost, mostly reads."""
    rows = whole_rows()
    random = np.random.default_rng(6)
    kept = [random.random() > (0.27 if row["op"] == 1 else 0.03) for row in rows]
    gaps = [{"lost_kind": 1, "cpu": 0, "lost_count": 100, "start_ns": 2_000_000_000, "duration_ns": 500_000_000}]
    return lossy_trace(rows, kept, lost=LOST, gaps=gaps, start_monotonic_ns=1_000_000_000)


def test_three_parameters_are_those_of_the_whole_trace(lossy):
    whole, workload = workload_of(made_trace(whole_rows())), workload_of(lossy)
    assert workload.read_frac == whole.read_frac == 0.7
    assert workload.size_mean == pytest.approx(whole.size_mean)
    assert workload.process_num == whole.process_num == 2
    assert workload.unique_bytes < 0.9 * whole.unique_bytes


def test_a_lost_request_breaks_a_sequential_stream():
    rows = [read(100 * at, 100, 10 * at) for at in range(100)]
    trace = lossy_trace(rows, [at % 5 != 0 for at in range(100)], lost=LOST)
    assert workload_of(made_trace(rows)).seq_frac == 0.99
    assert workload_of(trace).seq_frac == 0.75


def test_they_would_be_wrong_without_the_totals(lossy):
    del lossy.header.metadata["totals"]
    assert workload_of(lossy).read_frac < 0.67
    assert known_from_totals(lossy) == ()


def test_documents_say_which_are_which(lossy):
    document = characterize(lossy).as_document()
    vfs, block = document["layers"]["vfs"], document["layers"]["block"]
    assert document["trustworthy"] is False
    assert vfs["lower_bounds"] == ["uniqueBytes", "seqFrac"]
    assert vfs["from_totals"] == ["readFrac", "sizeMean", "processNum"]
    assert block["lower_bounds"] == block["from_totals"] == []
    assert {"lower_bounds", "from_totals"} <= set(document["definitions"])


def test_text_says_which_are_which(lossy):
    lines = {line.split()[0]: line for line in render(characterize(lossy)).splitlines() if line.strip()}
    assert ">= " in lines["uniqueBytes"]
    assert "LOWER BOUND" in lines["uniqueBytes"]
    assert "TOO LOW as a rule" in lines["seqFrac"]
    for name in ("readFrac", "sizeMean", "processNum"):
        assert "exact: from totals" in lines[name]


def test_text_without_totals(lossy):
    lossy.header.metadata.clear()
    lines = {line.split()[0]: line for line in render(characterize(lossy)).splitlines() if line.strip()}
    assert "LOWER BOUND" in lines["uniqueBytes"]
    assert "ESTIMATE" in lines["readFrac"]


def test_verbs_exit_3(lossy, tmp_path, capsys):
    path = package.write(lossy, tmp_path / "a.iotrace")
    assert main(["characterize", str(path), "--format", "json"]) == 3
    captured = capsys.readouterr()
    assert json.loads(captured.out)["layers"]["vfs"]["parameters"]["readFrac"] == 0.7
    assert "readFrac, sizeMean, processNum of the application, which are exact" in captured.err
    assert main(["info", str(path)]) == 3
    assert "in 1 gaps, from 1.000000 s to 1.500000 s" in capsys.readouterr().out


def test_without_loss_the_records_decide():
    """Totals of a trace that is whole are no better than its records, and a filter may have left some out."""
    trace = made_trace(
        [read(0, 100)], metadata={"totals": {"read": {}, "write": {"syscall": {"count": 5, "bytes": 5}}}}
    )
    assert workload_of(trace).read_frac == 1


def test_losses_of_the_other_layer_do_not_matter():
    trace = made_trace([read(0, 100)], lost={RecordKind.BLOCK: 3}, flags=HeaderFlag.LOST)
    assert (is_lossy(trace, "vfs"), is_lossy(trace, "block")) == (False, True)
    document = characterize(trace).as_document()
    assert document["layers"]["vfs"]["lower_bounds"] == []
    assert document["layers"]["block"]["lower_bounds"] == ["uniqueBytes", "seqFrac"]


def test_a_flag_without_counts_is_a_loss_of_anything():
    trace = made_trace([read(0, 100)], flags=HeaderFlag.LOST)
    assert is_lossy(trace, "vfs")
    assert is_lossy(trace, "block")
    assert characterize(trace).as_document()["trustworthy"] is False


def lossy_layers(facts):
    return [layer for layer in ("vfs", "block") if is_lossy(facts, layer)]


def test_what_nobody_counted_is_of_both_layers_whatever_was_counted(tmp_path):
    """Blocks were lost and counted; then the recorder was killed, or the end of its file was cut off."""
    clock = {"start_monotonic_ns": 1, "start_realtime_ns": 10**18, "end_monotonic_ns": 99}
    rows = [read(4096 * at, 4096, 1 + at, id=1 + at) for at in range(20)]
    about = {"files": [{"file": 1}], "tasks": [{"thread": 1, "process": 1}], **clock}
    counted = made_trace(rows, lost={RecordKind.BLOCK: 3}, flags=HeaderFlag.LOST, **about)
    whole = package.write(counted, tmp_path / "whole.iotrace")
    assert lossy_layers(counted) == lossy_layers(package.open(whole)) == ["block"]
    killed = made_trace(rows, lost={RecordKind.BLOCK: 3}, flags=HeaderFlag.INCOMPLETE, **about)
    assert lossy_layers(killed) == ["vfs", "block"]
    cut_off = tmp_path / "cut.iotrace"
    cut_off.write_bytes(whole.read_bytes()[:-640])
    assert "is truncated" in package.open(cut_off).warnings[0]
    for facts in (package.open(cut_off), open_stream(cut_off).facts):
        assert lossy_layers(facts) == ["vfs", "block"]
    uncounted = package.write(made_trace(rows, flags=HeaderFlag.LOST, **about), tmp_path / "uncounted.iotrace")
    assert lossy_layers(merge([package.open(whole), package.open(uncounted)])) == ["vfs", "block"]
    assert lossy_layers(merge([package.open(whole)] * 2)) == ["block"]
    together = characterize_set([whole, uncounted]).as_document()["layers"]
    assert [bool(layer["lower_bounds"]) for layer in together.values()] == [True, True]


@pytest.fixture
def written_anew(tmp_path):
    """The trace of a killed recorder, written as a whole file: what is missing was not counted by anybody."""
    task = {"thread": 1, "process": 1}
    killed = made_trace([read(0, 100)], files=[{"file": 1}], tasks=[task], flags=HeaderFlag.INCOMPLETE)
    return package.write(killed, tmp_path / "anew.iotrace")


def test_a_loss_that_nobody_counted_is_told_by_every_verb(written_anew, capsys):
    for trace in (package.open(written_anew), open_stream(written_anew).facts):
        assert trace.header.lost == {}
        (warning,) = trace.warnings
        assert "what is missing is not counted; uniqueBytes is a lower bound" in warning
    assert main(["info", str(written_anew)]) == 3
    out = capsys.readouterr().out
    assert "LOST RECORDS, not counted" in out
    assert "lost                  0" not in out
    assert main(["characterize", str(written_anew)]) == 3
    error = capsys.readouterr().err
    assert "records are missing, uncounted" in error
    assert "ring-bytes" not in error


@pytest.mark.parametrize("flags", [HeaderFlag.INCOMPLETE, HeaderFlag.LOST])
def test_a_comparison_with_such_a_recording_is_not_trusted(flags):
    workload = Workload(4096, 0, 1, 4096, 1)
    unused = {"profile": None, "directory": None, "memory_bytes": None, "repeat": 1, "seed": 0}
    trace = made_trace([read(0, 100)], flags=flags)
    setting = Setting(trace, {}, workload, **unused, timing="think", max_seconds=1)
    assert application_row(setting).reasons == ["records were lost while recording"]


def test_number_in_flight_may_be_missing(lossy):
    del lossy.header.metadata["in_flight_max"]
    assert known_from_totals(lossy) == ("readFrac", "sizeMean")
    assert workload_of(lossy).process_num == 2


@pytest.mark.parametrize(
    "totals", [None, [], {}, {"read": 5, "write": {}}, {"read": {"syscall": {}}, "write": {}}, "x"]
)
def test_damaged_totals_are_none(totals):
    trace = made_trace([read(0, 100)], flags=HeaderFlag.LOST, metadata={"totals": totals})
    assert workload_of(trace).read_frac == 1
    assert known_from_totals(trace) == ()


def test_pages_of_programs_are_taken_out_of_the_totals():
    """Half of the mapped reads are of programs; 40 of 80 bytes each count, by the share among the records."""
    flags = int(IoFlag.ESTIMATED | IoFlag.PROGRAM)
    rows = [read(4096 * at, 4096, at, source=Source.MMAP, flags=flags if at % 2 else 0) for at in range(40)]
    rows += [write(0, 4096, 100 + at) for at in range(20)]
    kept = [at % 4 < 2 for at in range(60)]
    trace = lossy_trace(rows, kept, lost=LOST)
    assert workload_of(trace).read_frac == pytest.approx(20 / 40)
    assert workload_of(trace, "vfs", "all").read_frac == pytest.approx(40 / 60)
    assert workload_of(trace, "vfs", "none").read_frac == 0
    # That share is an estimate; with all of them, or with none, the totals are exact.
    lines = {line.split()[0]: line for line in render(characterize(trace)).splitlines() if line.strip()}
    assert "ESTIMATE: from totals" in lines["readFrac"]
    for rule, exact in (("data", ()), ("all", ("readFrac", "sizeMean")), ("none", ("readFrac", "sizeMean"))):
        assert known_from_totals(trace, rule) == exact


def test_the_number_in_flight_is_an_estimate_where_it_is_not_of_requests():
    """Accesses to mapped files are counted when they end, one by one: three at once, of which the records know."""
    mapped = [read(4096 * at, 4096, 10 * (at // 3), 9, source=Source.MMAP, thread=at) for at in range(30)]
    empty, failed = read(0, 0, 5, 90), read(0, -5, 5, 90)
    for rows, counted in ((mapped, 1), ([*whole_rows(), empty], 3), ([*whole_rows(), failed], 3)):
        trace = lossy_trace(rows, [True] * len(rows), counted, lost=LOST)
        trace.header.metadata["totals"] = totals_of([row for row in rows if row["result"] > 0])
        trace.header.metadata["totals"]["read"].setdefault("syscall", {})["failed"] = int(counted == 3)
        vfs = characterize(trace).layers["vfs"]
        assert vfs.parameters.process_num == workload_of(trace).process_num == 3
        assert "processNum" not in vfs.from_totals
        assert "processNum" in vfs.estimated_from_totals
        (line,) = (line for line in render(characterize(trace)).splitlines() if "processNum" in line)
        assert "ESTIMATE: from totals of all operations" in line


def test_an_altered_trace_is_what_its_records_are(lossy, tmp_path):
    parent = package.open(package.write(lossy, tmp_path / "a.iotrace"))
    trace, manifest = alter(parent, {"readFrac": 0.2})
    assert workload_of(trace).read_frac == pytest.approx(0.2, abs=0.01)
    assert manifest.achieved.read_frac == workload_of(trace).read_frac
