# SPDX-License-Identifier: Apache-2.0
"""replay --device --record: block requests of the original against those of the replay, on devices of the kernel's."""

import json
import math

import pytest

import characterize
from characterize.layout import BlockOp, FileType, HeaderFlag, RecordKind
from characterize.workload import PARAMETERS
from flextrace.main import main
from tests.machines.block_device import loop_device, partition
from tests.traces.made_trace import made_trace, read
from tests.traces.overlapping_requests import COUNT, SIZE, overlapping_requests
from tests.truths.straced import needs_engine

pytestmark = [needs_engine, pytest.mark.records, pytest.mark.parallel]

FLUSHES = 13


@pytest.fixture
def disk(tmp_path):
    with loop_device(tmp_path / "disk", SIZE) as device:
        yield device


@pytest.fixture
def limited(disk):
    """The same, but it takes no more than 16 KiB at a time; the next disk of that name would not either."""
    limit = disk.system_directory / "queue" / "max_sectors_kb"
    before = limit.read_text()
    limit.write_text("16")
    yield disk
    limit.write_text(before)


def rows(span=SIZE):
    """Reads and writes that do not touch, and flushes behind them."""
    last_ns = 10_000 * (COUNT + 10)
    flushes = [{"op": BlockOp.FLUSH, "start_ns": last_ns + 100 * at, "duration_ns": 50} for at in range(FLUSHES)]
    return overlapping_requests(span, seed=7, apart=128 << 10) + flushes


def trace_of(made, place):
    return characterize.write(made_trace(blocks=made), place / "blocks.iotrace")


def recorded(trace, device, *options, size=SIZE, writes=True, status=0):
    output = trace.with_suffix(".json")
    arguments = ["replay", trace, "--device", device, "--record", *options, "--output", output, "--force"]
    arguments += ["--write", "--confirm", size] if writes else []
    assert main([*map(str, arguments)]) == status
    return json.loads(output.read_text())


@pytest.mark.parametrize("engine", ["sync", "io_uring"])
def test_requests_and_parameters_are_those_of_the_original(disk, tmp_path, capsys, engine):
    """As the kernel counts them, which also has a look for signatures at the begin and a flush at the end."""
    trace, kept = trace_of(rows(), tmp_path), tmp_path / "kept.iotrace"
    before = disk.statistics()
    fidelity = recorded(trace, disk.path, kept, "--engine", engine)["fidelity"]
    after = disk.statistics()
    reads = sum(row["op"] == BlockOp.READ for row in rows())
    kinds = {"read": reads, "write": COUNT - reads, "flush": FLUSHES}
    assert fidelity["requests_by_kind"] == {kind: {"original": count, "replay": count} for kind, count in kinds.items()}
    written = sum(row["bytes"] for row in rows() if row["op"] == BlockOp.WRITE)
    assert after["write_bytes"] - before["write_bytes"] == fidelity["replay"]["requests"]["written_bytes"] == written
    assert after["flushes"] - before["flushes"] == FLUSHES + 1
    assert after["reads"] - before["reads"] > reads
    original, again = fidelity["original"], fidelity["replay"]
    for name in PARAMETERS[:4]:
        assert again["parameters"][name] == original["parameters"][name], name
    assert original["parameters"]["processNum"] == 5 >= again["parameters"]["processNum"]
    assert again["requests"] == original["requests"]
    assert again["requests"]["syncs"] == FLUSHES
    for way in ("read", "write"):
        assert fidelity["distance"][f"{way}_size"] == {"ks": 0, "emd_share": 0}
        assert again["sizes"][way] == original["sizes"][way]
        assert again["response_time"][way]["count"] == kinds[way]
        assert 0 <= fidelity["distance"][way]["ks"] <= 1
    assert fidelity["distance"]["in_flight"]
    order = fidelity["order"]
    assert (order["compared"], order["expected"], order["share"]) == (COUNT + FLUSHES, COUNT + FLUSHES, 1)
    assert (order["violations"], order["added"]) == (0, 0)
    assert order["rules"]["interval_order"]["checked"] > 0
    # What the block layer has none of is no zero.
    for name in fidelity["not_applicable"]:
        assert original[name] is None, name
        assert again[name] is None, name
    assert "page_cache" in fidelity["not_applicable"]
    assert (fidelity["layer"], fidelity["source"], fidelity["device"]) == ("block", "8:0", disk.path)
    # Response times are those of the device's records.
    blocks = characterize.open(kept).arrays[RecordKind.BLOCK]
    blocks = blocks[(blocks["device"] == disk.number) & (blocks["op"] == BlockOp.WRITE)]
    assert again["response_time"]["write"]["mean_ns"] == pytest.approx(blocks["duration_ns"].mean(), rel=1e-6)

    text = capsys.readouterr().out
    told = text[text.index("fidelity") :]
    assert all(len(line) < 80 for line in told.splitlines())
    assert "not applicable to block requests: page-cache hits" in told
    assert "unaccounted for: none" in told
    page = tmp_path / "report.html"
    assert main(["report", "-o", str(page), "--replay", str(trace.with_suffix(".json"))]) == 0
    html = page.read_text()
    for words in ("Response times, original and replay", "write size", "not applicable", f"on {disk.path}"):
        assert words.lower() in html.lower(), words


def test_without_write_only_reads_are_compared(disk, tmp_path):
    document = recorded(trace_of(rows(), tmp_path), disk.path, writes=False)
    fidelity = document["fidelity"]
    reads = sum(row["op"] == BlockOp.READ for row in rows())
    assert document["skipped_reasons"] == {"writes_off": COUNT - reads}
    assert fidelity["original"]["requests"]["reads"] == fidelity["replay"]["requests"]["reads"] == reads
    assert fidelity["original"]["requests"]["writes"] == 0
    assert fidelity["order"]["expected"] == fidelity["order"]["compared"] == reads + FLUSHES
    assert any("only read" in note for note in fidelity["notes"])
    assert fidelity["trustworthy"]


def test_requests_that_the_device_divides_are_told(limited, tmp_path, capsys):
    fidelity = recorded(trace_of(rows(), tmp_path), limited.path)["fidelity"]
    told = " ".join(capsys.readouterr().out.split())
    for way, kind in (("read", BlockOp.READ), ("write", BlockOp.WRITE)):
        sizes = [row["bytes"] for row in rows() if row["op"] == kind]
        divided = sum(math.ceil(size / (16 << 10)) for size in sizes)
        assert fidelity["requests_by_kind"][way] == {"original": len(sizes), "replay": divided}
        assert f"{divided - len(sizes)} {way}" in told
        assert fidelity["distance"][f"{way}_size"]["ks"] > 0.3
    assert fidelity["order"]["share"] == 1


def test_a_partition_has_only_its_own_requests(disk, tmp_path):
    """The records name its disk, and places on that."""
    half = SIZE // 2
    trace = trace_of(rows(half), tmp_path)
    with partition(disk, half // 512) as part:
        fidelity = recorded(trace, part, size=half)["fidelity"]
    reads = sum(row["op"] == BlockOp.READ for row in rows(half))
    assert fidelity["requests_by_kind"]["read"] == {"original": reads, "replay": reads}
    assert fidelity["requests_by_kind"]["write"] == {"original": COUNT - reads, "replay": COUNT - reads}
    assert fidelity["replay"]["parameters"]["uniqueBytes"] == fidelity["original"]["parameters"]["uniqueBytes"]


def test_an_imported_trace_of_another_tool(disk, tmp_path):
    """With places that are wrapped, and without response times."""
    table = tmp_path / "foreign.csv"
    lines = [
        f"{row['start_ns']},{row['op'].name},{row['sector'] * 512 + (SIZE << 2)},{row['bytes']},8:16"
        for row in rows()[:COUNT]
    ]
    table.write_text("\n".join(["start_ns,op,offset,bytes,device", *lines]) + "\n")
    trace = tmp_path / "foreign.iotrace"
    assert main(["import", str(table), "-o", str(trace)]) == 0
    fidelity = recorded(trace, disk.path, "--fit", "wrap", "--lanes", "3", "--layer", "block")["fidelity"]
    assert fidelity["original"]["response_time"] is None
    assert fidelity["replay"]["response_time"]["read"]["count"] == fidelity["original"]["requests"]["reads"]
    assert fidelity["requests_by_kind"]["write"]["replay"] == fidelity["original"]["requests"]["writes"]
    assert fidelity["replay"]["parameters"]["processNum"] <= 3


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--directory", "/no/such/image"], "files or a device"),
        (["--layer", "vfs"], "--layer block"),
        (["--loop", "--max-time", "1"], "--loop"),
    ],
)
def test_wrong_usage(disk, tmp_path, capsys, options, word):
    io, files = [read(0, 4096)], [{"file": 1, "type": FileType.BLOCK_DEVICE, "size_bytes": SIZE}]
    trace = characterize.write(made_trace(io, files=files, blocks=rows()), tmp_path / "both.iotrace")
    assert main(["replay", str(trace), "--device", disk.path, "--record", *options]) == 2
    assert word in capsys.readouterr().err


def test_a_trace_without_block_requests_is_told_where_its_replay_can_be_recorded(disk, tmp_path, capsys):
    trace = characterize.write(
        made_trace([read(0, 4096)], files=[{"file": 1, "size_bytes": SIZE}], flags=HeaderFlag.UNTIMED),
        tmp_path / "synthetic.iotrace",
    )
    assert main(["replay", str(trace), "--device", disk.path, "--record"]) == 2
    message = capsys.readouterr().err
    assert "--directory" in message
    assert "--layer block" not in message
