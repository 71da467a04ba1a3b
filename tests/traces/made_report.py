# SPDX-License-Identifier: Apache-2.0
"""What reports are made of in tests: a profile, a trace and a comparison of made-up numbers, and a page read back."""

from __future__ import annotations

import functools
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np

import characterize
from characterize.layout import (
    BLOCK_DTYPE,
    FILE_DTYPE,
    FILEOP_DTYPE,
    IO_DTYPE,
    BlockForm,
    BlockOp,
    Fileop,
    FileType,
    IoOp,
    RecordKind,
)
from characterize.trace import Header, Trace
from characterize.workload import FIELD_OF, Workload
from selfscale.comparing.comparison import Row, comparison_document, sample_of
from selfscale.measure import Point
from selfscale.predict import record_scores
from selfscale.profile import Profile, Region

MIB = 2**20
EVIL = "/data/<script>alert('owned')</script>&\"quoted\".db"
VOID = {"meta", "br", "hr", "img", "link", "input", "col", "wbr", "source", "base"}


def make_profile() -> Profile:
    """Two regions around a cache of 100 MiB; throughput by a made-up formula; carries the errors of its models."""
    profile = make_points()
    profile.models = models_of_points()
    return profile


@functools.cache
def models_of_points() -> dict[str, Any]:
    profile = make_points()
    record_scores(profile)
    return profile.models


def make_points() -> Profile:

    def point(workload: Workload, **more: Any) -> Point:
        cached = 1 / (1 + (workload.unique_bytes / (100 * MIB)) ** 6)
        throughput = 1e9 * (0.08 + cached) * (workload.size_mean / 32768) ** 0.4 * (0.7 + 0.3 * workload.seq_frac)
        throughput *= (0.8 + 0.2 * workload.read_frac) * workload.process_num**0.2
        return Point(workload, throughput, 0.03 * throughput, **more)

    focal = [Workload(size * MIB, 0.5, 0.5, 32768.0, 1.0) for size in (40, 200)]
    points = [
        point(focal[0].replace(unique_bytes=size * MIB)) for size in (5, 10, 20, 40, 60, 80, 100, 120, 160, 200, 400)
    ]
    values = {
        "sizeMean": (4096, 16384, 32768, 131072),
        "readFrac": (0, 0.25, 0.5, 0.75, 1),
        "processNum": (1, 2, 4, 8),
        "seqFrac": (0, 0.5, 1),
    }
    for number, workload in enumerate(focal):
        for parameter, choices in values.items():
            for value in choices:
                changed = workload.replace(**{FIELD_OF[parameter]: float(value)})
                points.append(point(changed, role="curve", region=number, parameter=parameter))
    random = np.random.default_rng(1)
    for _ in range(12):
        size, seq, read = random.uniform(10, 350), random.uniform(), random.uniform()
        points.append(point(Workload(size * MIB, seq, read, 16384.0, 2.0), role="random"))
    return Profile(
        measured=points,
        boundaries_bytes=[100.0 * MIB],
        regions=[Region(5 * MIB, 100 * MIB, focal[0]), Region(100 * MIB, 400 * MIB, focal[1])],
        environment={"memory_limit_bytes": 128 * MIB, "kernel": "6.18", "filesystem": "ext4"},
        complete=True,
    )


def make_trace(path: Path, requests: int = 3000, name: str = EVIL, **metadata: Any) -> Trace:
    """Reads and writes of two files, some syncs, and the block requests below them."""
    random = np.random.default_rng(7)
    io = np.zeros(requests, IO_DTYPE)
    io["kind"], io["thread"], io["process"] = RecordKind.IO, 5, 5
    io["op"] = np.where(random.random(requests) < 0.6, IoOp.READ, IoOp.WRITE)
    io["start_ns"] = 10**9 + np.cumsum(random.exponential(50_000, requests)).astype(np.uint64)
    io["duration_ns"] = random.lognormal(9, 1, requests).astype(np.uint64)
    io["file"] = np.where(np.arange(requests) % 3, 1, 2)
    io["asked_bytes"] = io["result"] = 4096 * 2 ** random.integers(0, 4, requests)
    io["offset"] = 4096 * random.integers(0, 4096, requests)
    io["missed_bytes"] = 2**32 - 1
    file = np.zeros(2, FILE_DTYPE)
    file["kind"], file["type"], file["file"], file["size_bytes"] = RecordKind.FILE, FileType.REGULAR, (1, 2), 16 * MIB
    sync = np.zeros(len(io["start_ns"][::150][:20]), FILEOP_DTYPE)
    sync["kind"], sync["op"], sync["thread"], sync["process"], sync["file"] = RecordKind.FILEOP, Fileop.FSYNC, 5, 5, 1
    sync["start_ns"], sync["duration_ns"] = io["start_ns"][::150][:20] + 30, 2_000_000
    block = np.zeros(min(500, requests), BLOCK_DTYPE)
    block["kind"], block["op"], block["form"] = RecordKind.BLOCK, BlockOp.READ, BlockForm.REQUEST
    block["start_ns"], block["duration_ns"] = io["start_ns"][:500] + 10, 90_000
    block["device"], block["bytes"], block["sector"] = 254 << 20, 8192, 16 * np.arange(len(block))
    block["queued_ns"] = 2**64 - 1
    header = Header(start_monotonic_ns=10**9, end_monotonic_ns=int(io["start_ns"].max()) + 10**8)
    header.metadata = {"memory_limit_bytes": 128 * MIB, "command": ["cat", name], **metadata}
    arrays = {RecordKind.IO: io, RecordKind.FILE: file, RecordKind.FILEOP: sync, RecordKind.BLOCK: block}
    characterize.write(Trace(header, arrays, {1: name, 2: "/data/two"}), path)
    return characterize.open(path)


def make_comparison(trace: str = EVIL) -> dict[str, Any]:
    def row(name: str, *speeds: float, **more: Any) -> Row:
        documents = [
            {
                "throughput_in_io_bytes_per_s": speed,
                "throughput_bytes_per_s": speed / 3,
                "time_in_sync_s": 0.1,
                "response_time": {
                    "read": {"count": 10, "mean_ns": 9e12 / speed},
                    "write": {"count": 5, "mean_ns": 4e12 / speed},
                },
            }
            for speed in speeds
        ]
        workload = Workload(8 * MIB, 0.5, 0.5, 8192.0, 1.0)
        return Row(
            name,
            name.replace("_", " "),
            "made by hand",
            workload,
            [sample_of(one) for one in documents],
            128 * MIB,
            0.4,
            "cold",
            **more,
        )

    prediction = row(
        "prediction", 250e6, details={"interval_bytes_per_s": [200e6, 300e6]}, reasons=["0% of its read bytes cold"]
    )
    prediction.samples[0]["read_mean_ns"] = None
    rows = [
        row("application", 300e6),
        row("replay", 310e6, 290e6, 305e6),
        row("willy", 210e6, 260e6, 250e6),
        prediction,
    ]
    return comparison_document(rows, ("application", "replay"), trace=trace, seed=0)


class Page(HTMLParser):
    """What a reader's browser would find; remembers unbalanced elements."""

    def __init__(self, text: str):
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.scripts: list[tuple[dict[str, Any], str]] = []
        self.text: list[str] = []
        self.tags: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag == "script":
            self.scripts.append((dict(attrs), ""))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            attributes, text = self.scripts[-1]
            self.scripts[-1] = (attributes, text + data)
        elif "style" not in self.open:
            self.text.append(data)
