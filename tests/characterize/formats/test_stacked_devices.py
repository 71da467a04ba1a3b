# SPDX-License-Identifier: Apache-2.0
"""Requests that dm, md or multipath passed on count once: made by hand as the kernel traces them, in three formats."""

from __future__ import annotations

import struct
import subprocess
from typing import NamedTuple

import pytest

import characterize
from characterize.characterization import characterize as numbers_of
from characterize.errors import FlextraceError
from characterize.layout import BlockFlag
from flextrace.main import main
from tests.traces.block_events import QUEUE, WRITE, event, needs_blkparse

pytestmark = pytest.mark.parallel

DM, DISK, PARTITION, PATH, OTHER = "253,0", "8,0", "8,2", "65,176", "8,16"


class Event(NamedTuple):
    device: str
    action: str
    sector: int
    sectors: int = 8
    source: str = ""
    source_sector: int = 0


def volume(partition_of_remap: str, queued_on: str) -> list[Event]:
    """Two parts of a write to a logical volume on a partition, and a write to another disk."""
    return [
        Event(DM, "Q", 1000, 16),
        Event(PARTITION, "A", 5000, 8, DM, 1000),
        Event(partition_of_remap, "A", 7048, 8, PARTITION, 5000),
        Event(queued_on, "Q", 7048),
        Event(DISK, "D", 7048),
        Event(PARTITION, "A", 6000, 8, DM, 1008),
        Event(partition_of_remap, "A", 8048, 8, PARTITION, 6000),
        Event(queued_on, "Q", 8048),
        Event(DISK, "D", 8048),
        Event(OTHER, "Q", 7048),
        Event(OTHER, "D", 7048),
        Event(DISK, "C", 7048),
        Event(DISK, "C", 8048),
        Event(DM, "C", 1000, 16),
        Event(OTHER, "C", 7048),
    ]


KERNELS = {"5.11": (DISK, DISK), "5.12": (PARTITION, PARTITION)}
"""Since 5.12 a bio keeps the number of its partition; blktrace has that of the disk for everything but remaps."""


def blkparse(events: list[Event]) -> bytes:
    lines = []
    for at, it in enumerate(events):
        behind = f"<- ({it.source}) {it.source_sector}" if it.action == "A" else "[0]" if it.action == "C" else "[app]"
        place = f"{it.sector} + {it.sectors}"
        lines.append(f"{it.device:>8}  0 {at + 1:8} 0.{1000 * at:09} 77  {it.action}   W {place} {behind}")
    return "\n".join(lines).encode() + b"\n"


def perf(events: list[Event]) -> bytes:
    names = {"Q": "bio_queue", "A": "bio_remap", "D": "rq_issue"}
    lines = []
    for at, it in enumerate(events):
        has_requests = it.device != DM or any(other[:2] == (DM, "D") for other in events)
        name = names.get(it.action) or ("rq_complete" if has_requests else "bio_complete")
        moved = {"rq_issue": f"{512 * it.sectors} () ", "rq_complete": "() "}.get(name, "")
        behind = f"<- ({it.source}) {it.source_sector}" if it.action == "A" else "[0]" if it.action == "C" else "[app]"
        if it.action == "A" and has_requests and it.device == PATH:
            name, behind = "rq_remap", f"{behind} 1"
        place = f"{it.sector} + {it.sectors}"
        lines.append(f"app 77 [000] 9.{at:06}: block:block_{name}: {it.device} W {moved}{place} {behind}")
    return "\n".join(lines).encode() + b"\n"


def number(device: str) -> int:
    major, minor = map(int, device.split(","))
    return major << 20 | minor


def blktrace(events: list[Event], traced: str = DISK) -> bytes:
    """As in ``blkparse -d``; `traced` is the disk, or its partition by itself, which all its events then name."""
    content = b""
    for at, it in enumerate(events):
        action, payload = it.action, b""
        if it.action == "A":
            action = (QUEUE, 15)
            payload = struct.pack(">IIQ", number(it.source), number(it.device), it.source_sector)
        device = number(traced if it.device in (DISK, PARTITION) else it.device)
        content += event(1000 * at, action, it.sector, 512 * it.sectors, WRITE, payload=payload, device=device)
    return content


RENDERED = {"blkparse": blkparse, "perf": perf, "blktrace": blktrace}


def read(tmp_path, content: bytes):
    path = tmp_path / "events"
    path.write_bytes(content)
    return characterize.open(path)


def marked(trace) -> list[str]:
    """Devices of which requests are marked."""
    blocks = trace.blocks
    stacked = (blocks["flags"] & int(BlockFlag.STACKED)) != 0
    return sorted({f"{device >> 20},{device & 0xFFFFF}" for device in blocks["device"][stacked].tolist()})


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("form", RENDERED)
def test_a_write_through_a_logical_volume_counts_once(tmp_path, form, kernel):
    remap_to, queued_on = KERNELS[kernel]
    trace = read(tmp_path, RENDERED[form](volume(remap_to, queued_on if form == "perf" else DISK)))
    assert trace.header.metadata["imported"]["format"] == form
    assert len(trace.blocks) == 4
    assert marked(trace) == [DM]
    assert trace.header.metadata["imported"]["stacked"] == {"253:0": 1}
    counts = numbers_of(trace).layers["block"].counts
    assert (counts["writes"], counts["written_bytes"]) == (3, 3 * 4096)


@pytest.mark.parametrize("form", RENDERED)
def test_requests_that_were_passed_on_whole_count_once(tmp_path, form):
    """Multipath: requests on both devices; a disk of its own besides."""
    events = [Event(DM, "Q", 384), Event(DM, "D", 384), Event(PATH, "A", 384, 8, DM, 384), Event(PATH, "D", 384)]
    trace = read(tmp_path, RENDERED[form]([*events, Event(PATH, "C", 384), Event(DM, "C", 384)]))
    assert len(trace.blocks) == 2
    assert marked(trace) == [DM]


@pytest.mark.parametrize("form", RENDERED)
def test_a_stacked_device_alone_counts(tmp_path, form):
    below = (DISK, PARTITION)
    trace = read(tmp_path, RENDERED[form]([it for it in volume(*KERNELS["5.11"]) if it.device not in (*below, OTHER)]))
    assert marked(trace) == []
    assert numbers_of(trace).layers["block"].counts["written_bytes"] == 8192


def partition_by_itself() -> list[Event]:
    """Up to 5.11; and another disk."""
    events = []
    for sector in (7048, 9096):  # the second is where a remap of the first would come from
        events += [Event(DISK, "A", sector, 8, PARTITION, sector - 2048), Event(PARTITION, "Q", sector)]
    events += [Event(PARTITION, action, sector) for action in "DC" for sector in (7048, 9096)]
    return [*events, *(Event(OTHER, action, 16) for action in "QDC")]


@pytest.mark.parametrize("content", [blkparse(partition_by_itself()), blktrace(partition_by_itself(), PARTITION)])
def test_a_partition_traced_by_itself_is_not_stacked(tmp_path, content):
    """Of the remaps blkparse names the disk, of all else the partition."""
    trace = read(tmp_path, content)
    assert len(trace.blocks) == 3
    assert marked(trace) == []
    assert "stacked" not in trace.header.metadata["imported"]


@needs_blkparse
@pytest.mark.parametrize(
    ("content", "remap", "stacked"),
    [
        (blktrace(volume(*KERNELS["5.11"])), "8,2 A W 5000 + 8 <- (253,0) 1000", [DM]),
        (blktrace(partition_by_itself(), PARTITION), "8,0 A W 7048 + 8 <- (8,2) 5000", []),
    ],
)
def test_blkparse_prints_the_same(tmp_path, content, remap, stacked):
    (tmp_path / "events.blktrace.0").write_bytes(content)
    done = subprocess.run(["blkparse", "events"], cwd=tmp_path, check=True, capture_output=True)
    lines = [line.split() for line in done.stdout.decode().splitlines() if line]
    assert remap in [" ".join([*line[:1], *line[5:]]) for line in lines]
    assert marked(read(tmp_path, done.stdout)) == stacked


def test_it_is_said(tmp_path, capsys):
    path, made = tmp_path / "events", tmp_path / "made.iotrace"
    path.write_bytes(blkparse(volume(*KERNELS["5.11"])))
    assert main(["import", str(path), "-o", str(made)]) == 0
    said = "device 253:0 is stacked on others: its 1 requests are in no total where those of the others are"
    assert said in capsys.readouterr().err
    assert main(["characterize", str(path)]) == 0
    captured = capsys.readouterr()
    assert said in captured.err + captured.out
    assert main(["characterize", str(made)]) == 0
    assert "requests of stacked devices, 8 KiB, not in any total" in capsys.readouterr().out


@pytest.mark.parametrize(("old", "new"), [("<- (253,0) 1000", "[app]"), ("[app]", "<- (8,0) 7")])
def test_only_a_remap_says_where_it_comes_from(tmp_path, old, new):
    content = blkparse(volume(*KERNELS["5.11"])).replace(old.encode(), new.encode(), 1)
    with pytest.raises(FlextraceError, match=r"expected <- \(MAJOR,MINOR\) SECTOR of a remap and of nothing else"):
        read(tmp_path, content)
