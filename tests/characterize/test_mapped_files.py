# SPDX-License-Identifier: Apache-2.0
"""Accesses to mapped files: a mapped database is data, the pages of libc are not, and a rule says which count."""

import json

import pytest

import characterize as package
from characterize.characterization import characterize
from characterize.errors import FlextraceError
from characterize.inventory import file_table
from characterize.layout import IoFlag, Source
from characterize.requests import left_out, requests_of
from characterize.text import render
from characterize.workload import Workload, workload_of
from flextrace.main import main
from replayer.alter import alter
from tests.traces.made_trace import made_trace, read, write
from tests.truths.system_paths import PATHS

pytestmark = pytest.mark.parallel

PAGE = 4096
ESTIMATED, PROGRAM = int(IoFlag.ESTIMATED), int(IoFlag.ESTIMATED | IoFlag.PROGRAM)
DATABASE, LIBRARY, TEXT = 1, 2, 3


def mapped(row, flags=ESTIMATED, **fields):
    return {**row, "source": Source.MMAP, "flags": flags, **fields}


def mapped_trace(**header):
    """A program that looks things up in a mapped database, writes to it, and reads and writes text by calls."""
    io = [
        mapped(read(0, 16 * PAGE, 1, 0), PROGRAM, file=LIBRARY, missed_bytes=0),
        read(0, 832, 2, file=LIBRARY, missed_bytes=0),  # the loader reads the header by a call
        mapped(read(16 * PAGE, 4 * PAGE, 3, 0), PROGRAM, file=LIBRARY, missed_bytes=0),
        mapped(read(0, PAGE, 10, 5), file=DATABASE, missed_bytes=PAGE),
        mapped(read(PAGE, PAGE, 20, 0), file=DATABASE, missed_bytes=0),
        mapped(write(PAGE, PAGE, 30, 0), file=DATABASE),
        mapped(write(0, PAGE, 31, 0), PROGRAM, file=DATABASE),  # stores count, also to a mapped program
        write(0, 100, 40, file=TEXT),
    ]
    files = [{"file": file, "size_bytes": 1 << 20} for file in (DATABASE, LIBRARY, TEXT)]
    paths = {DATABASE: "/srv/data.mdb", LIBRARY: "/usr/lib/libc.so.6", TEXT: "/srv/log"}
    return made_trace(io, files=files, paths=paths, tasks=[{"thread": 1, "process": 1}], **header)


EXPECTED = {
    # uniqueBytes, reads / requests, bytes / requests, by hand
    "data": (832 + 2 * PAGE + 100, 3 / 6, (832 + 4 * PAGE + 100) / 6),
    "all": (20 * PAGE + 2 * PAGE + 100, 5 / 8, (832 + 24 * PAGE + 100) / 8),
    "none": (832 + 100, 1 / 2, 932 / 2),
}


@pytest.mark.parametrize("rule", EXPECTED)
def test_parameters_by_rule(rule):
    unique, read_frac, mean = EXPECTED[rule]
    workload = workload_of(mapped_trace(), "vfs", rule)
    assert (workload.unique_bytes, workload.read_frac) == (unique, read_frac)
    assert workload.size_mean == pytest.approx(mean)
    assert characterize(mapped_trace(), rule).layers["vfs"].parameters == workload


def test_the_default_is_data():
    assert workload_of(mapped_trace()) == workload_of(mapped_trace(), "vfs", "data")
    assert characterize(mapped_trace()).mmap == "data"


@pytest.mark.parametrize("path", PATHS)
def test_files_of_the_system_are_left_out_by_their_place(path):
    """Mapped and read only; what is read by calls, or written, counts wherever it is."""
    io = [mapped(read(0, PAGE, 1)), read(0, PAGE, 2), mapped(write(0, PAGE, 3))]
    trace = made_trace(io, files=[{"file": 1}], paths={1: path})
    assert characterize(trace).layers["vfs"].counts["left_out"] == PATHS[path]


def test_sequential_faults_are_a_sequential_stream():
    io = [mapped(read(16 * PAGE * at, 16 * PAGE, at, 0)) for at in range(10)]
    assert workload_of(made_trace(io)).seq_frac == 0.9


def test_the_rule_does_not_touch_the_block_layer():
    blocks = [{"op": 1, "bytes": PAGE}]
    assert len(requests_of(made_trace(blocks=blocks), "block", "none")) == 1


def test_an_unknown_rule():
    with pytest.raises(FlextraceError, match="rule 'some'"):
        requests_of(mapped_trace(), "vfs", "some")


def test_what_is_left_out_is_counted():
    counts = characterize(mapped_trace()).layers["vfs"].counts
    assert (counts["mapped"], counts["mapped_bytes"]) == (4, 4 * PAGE)
    assert (counts["left_out"], counts["left_out_bytes"]) == (2, 20 * PAGE)
    counts = characterize(mapped_trace(), "none").layers["vfs"].counts
    assert (counts["mapped"], counts["left_out"]) == (0, 6)


def test_cold_and_hits_of_mapped_reads():
    """Of 832 + 2 x 4096 read bytes one page came from the device."""
    extended = characterize(mapped_trace()).layers["vfs"].extended
    assert extended["coldFrac"] == pytest.approx(PAGE / (832 + 2 * PAGE))
    assert extended["cacheHitFrac"] == pytest.approx(1 - PAGE / (832 + 2 * PAGE))


def test_the_list_of_files_has_all_accesses():
    table = file_table(mapped_trace()).set_index("path")
    assert table.loc["/usr/lib/libc.so.6", ["reads", "bytes"]].tolist() == [3, 20 * PAGE + 832]


@pytest.mark.parametrize("rule", EXPECTED)
def test_the_rule_is_printed(tmp_path, capsys, rule):
    path = package.write(mapped_trace(), tmp_path / "a.iotrace")
    assert main(["characterize", str(path), "--mmap", rule, "--layer", "vfs"]) == 0
    text = capsys.readouterr().out
    assert f"rule --mmap {rule}" in text
    assert f"mmap ({rule}): " in text
    assert all(len(line) <= 90 for line in text.splitlines() if not line.startswith("trace"))
    assert main(["characterize", str(path), "--mmap", rule, "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["mmap"] == rule
    parameters = Workload.from_document(document["layers"]["vfs"]["parameters"])
    assert parameters.unique_bytes == EXPECTED[rule][0]
    assert f"mmap ({rule})" in document["definitions"]


def test_nothing_is_said_where_nothing_is_mapped():
    assert "mapped files" not in render(characterize(made_trace([read(0, 10)])))


def test_alter_leaves_pages_of_programs_out(tmp_path):
    """They are no requests, so that the altered trace has none; of the others stays what was measured of the parent."""
    path = package.write(mapped_trace(metadata={"totals": {"read": {}}, "in_flight_max": 3}), tmp_path / "a.iotrace")
    parent = package.open(path)
    trace, manifest = alter(parent, {"readFrac": 0.0})
    assert manifest.before == workload_of(mapped_trace())
    assert len(trace.io) == 6
    requests = parent.io[~left_out(parent)]
    assert trace.io["missed_bytes"].tolist() == requests["missed_bytes"].tolist()
    assert workload_of(trace).read_frac == 0
    assert not {"totals", "in_flight_max"} & set(trace.header.metadata)
    assert manifest.requests == 6
