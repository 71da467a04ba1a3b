# SPDX-License-Identifier: Apache-2.0
"""How small archives of traces are and how fast they load, beside compressed raw traces: ``make bench-archive``.

The traces are those of the demo, recorded on the spot, and a synthetic one with random times, which compresses badly.
Loading ends with the arrays of a Trace; of a compressed raw trace it begins with its decompression in memory. Rates are
records by processor time, of all threads, and so per core.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

import characterize
from characterize.layout import HEADER_DTYPE, IO_DTYPE, TRACE_HEADER_BYTES, RecordKind
from characterize.trace_files.archive import pack, unpack
from characterize.workload import Workload
from replayer.willy import make_trace
from tests.bench.findings import Bar, Finding, print_findings
from tests.bench.interleaved import Sample, Way, run_interleaved
from tests.bench.scratch import work_directory
from tests.bench.spread import exactly, ratio_table, spread_of
from tests.bench.verb_run import run_verb
from tests.demo.demo import Demo, make_inputs
from tests.demo.sizes import QUICK, Sizes

BYTES_TARGET = 16  # per record, on the demo's traces
RATE_TARGET = 5  # M records/s per core
SAMPLE_SECONDS = 0.3  # of processor time, at least
CODECS = {"zstd -3": ("zstd", 3), "zstd -19": ("zstd", 19), "gzip -6": ("gzip", 6)}


def record_demo(work: Path, quick: bool) -> Iterator[tuple[str, Path]]:
    """The demo's two recordings, made as the demo makes them."""
    demo = Demo(work, work, QUICK if quick else Sizes())
    for application in make_inputs(demo):
        trace = work / f"{application.name}.iotrace"
        warm = [word for path in application.inputs for word in ("--warm", path)]
        memory = ["--memory", demo.sizes.memory]
        demo.command("flextrace", "record", "--quiet", *memory, *warm, "-o", trace, "--", *application.command)
        yield application.name, trace


def make_synthetic(path: Path, records: int) -> Path:
    """Willy's random requests of random sizes at random times, with random durations, repeated up to `records`."""
    rng = np.random.default_rng(1)
    part = 1 << 20  # records made at once
    made = make_trace(Workload(1 << 30, 0.3, 0.6, 16384, 8), requests=min(part, records), seed=1)
    characterize.write(made, path)
    content = bytearray(path.read_bytes())
    head = np.frombuffer(content, HEADER_DTYPE, 1)
    rows = np.frombuffer(content, IO_DTYPE, int(head["record_count"][0]), TRACE_HEADER_BYTES)
    io = np.flatnonzero(rows["kind"] == RecordKind.IO)
    begin, time_ns, written = int(io[0]), 1 << 50, 0
    with path.open("wb") as stream:
        stream.write(content[: TRACE_HEADER_BYTES + begin * IO_DTYPE.itemsize])
        while written < records:
            batch = rows[io[: records - written]].copy()
            batch["start_ns"] = time_ns + np.cumsum(rng.exponential(20_000, len(batch)).astype(np.uint64))
            batch["duration_ns"] = rng.lognormal(9, 1, len(batch)).astype(np.uint64)
            batch["id"] = np.arange(written + 1, written + 1 + len(batch))
            stream.write(batch.tobytes())
            time_ns, written = int(batch["start_ns"][-1]), written + len(batch)
        head["record_count"], head["count"][0, RecordKind.IO] = begin + written, written
        head["flags"] = 0
        stream.seek(0)
        stream.write(head.tobytes())
    return path


def rate_of(load: Callable[[], object], records: int) -> Sample:
    """Records by processor time, over as many loads as give a time that can be trusted."""
    begin, loads = time.process_time(), 0
    while not loads or time.process_time() - begin < SAMPLE_SECONDS:
        load()
        loads += 1
    return Sample(loads * records / (time.process_time() - begin))


def load_compressed(codec: pa.Codec, content: bytes, size: int) -> characterize.Trace:
    """Decompress in memory, then open."""
    with os.fdopen(os.memfd_create("trace"), "wb") as memory:
        memory.write(codec.decompress(content, size))
        memory.flush()
        return characterize.open(f"/proc/self/fd/{memory.fileno()}")


def measure_trace(title: str, trace: Path, rounds: int, size_bar: Bar | None = None) -> list[Finding]:
    """Print the table of one trace."""
    archive, content = trace.with_suffix(".parquet"), trace.read_bytes()
    begin = time.process_time()
    packed = pack(trace, archive)
    pack_rate = packed.records / (time.process_time() - begin)
    begin = time.process_time()
    unpack(archive, trace.with_suffix(".back"))
    unpack_rate = packed.records / (time.process_time() - begin)
    if trace.with_suffix(".back").read_bytes() != content:
        raise SystemExit(f"{title}: the archive does not give the trace back")
    sizes = {"raw": len(content), "archive": packed.archive_bytes}
    ways = {"raw": partial(characterize.open, trace), "archive": partial(characterize.open, archive)}
    for name, (codec_name, level) in CODECS.items():
        codec = pa.Codec(codec_name, level)
        compressed = codec.compress(content, asbytes=True)
        sizes[name] = len(compressed)
        ways[name] = partial(load_compressed, codec, compressed, len(content))
    measured = [Way(name, partial(rate_of, load, packed.records)) for name, load in ways.items()]
    samples = run_interleaved(measured, rounds)
    table = ratio_table(samples)[["rate", "ratio", "ratio_q1", "ratio_q3"]]
    table.insert(0, "bytes/record", pd.Series(sizes) / packed.records)
    print(f"\n{title}: {packed.records:,} records; loading, {rounds} rounds, records/s per core")
    print(table.to_string(float_format=lambda value: f"{value:,.2f}" if value < 1000 else f"{value:,.0f}"))
    print(f"export {pack_rate:,.0f} records/s (it reads the archive back and compares), import {unpack_rate:,.0f}")
    rates = spread_of(samples.loc[samples["way"] == "archive", "rate"] / 1e6)
    return [
        Finding(title, "a record", size_bar, exactly(packed.archive_bytes / packed.records), "bytes", digits=2),
        Finding(title, "records loaded per core", Bar(low=RATE_TARGET), rates, "M/s", digits=2),
    ]


def measure_memory(work: Path, records: int) -> None:
    """Print what export and import of a long trace take."""
    trace = make_synthetic(work / "long.iotrace", records)
    archive, back = work / "long.parquet", work / "long.back"
    there, again = run_verb("export", trace, "-o", archive), run_verb("import", archive, "-o", back)
    subprocess.run(["cmp", trace, back], check=True)
    print(
        f"{records:>12,} records of {trace.stat().st_size / 1e6:,.0f} MB: "
        f"export takes {there.peak_bytes / 1e6:.0f} MB of memory and {there.elapsed_s:.1f} s, "
        f"import {again.peak_bytes / 1e6:.0f} MB and {again.elapsed_s:.1f} s"
    )
    for path in (trace, archive, back):
        path.unlink()


def main() -> None:
    """Measure and print; the last table is the targets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="of loading (default: %(default)s)")
    parser.add_argument("--records", type=int, default=500_000, help="of the synthetic trace (default: %(default)s)")
    parser.add_argument(
        "--long",
        type=int,
        default=20_000_000,
        help="records of the trace whose memory is measured (default: %(default)s)",
    )
    parser.add_argument("--quick", action="store_true", help="record the demo at its tiny sizes")
    parser.add_argument("--directory", type=Path, help="where the traces are (default: a temporary directory)")
    arguments = parser.parse_args()
    with work_directory(arguments.directory) as work:
        findings = []
        for title, trace in record_demo(work, arguments.quick):
            findings += measure_trace(title, trace, arguments.rounds, Bar(BYTES_TARGET))
        synthetic = make_synthetic(work / "synthetic.iotrace", arguments.records)
        findings += measure_trace("synthetic", synthetic, arguments.rounds)
        print("\nmemory")
        for records in (arguments.long // 4, arguments.long):
            measure_memory(work, records)
    print_findings(findings, {})


if __name__ == "__main__":
    main()
