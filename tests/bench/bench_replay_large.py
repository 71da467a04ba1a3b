# SPDX-License-Identifier: Apache-2.0
"""A trace of 100 million records (6.4 GB) in the replay engine: how soon it starts, and in how much memory it runs.

``make bench-replay-large``. The requests are reads of 512 bytes of small cached files, so that the trace is gone
through as fast as can be. It has just been written: what of it is in the page cache before each run is said.
"""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path

import pandas as pd

from replayer.running.binaries import find_binary
from tests.bench.engine_memory import measure_memory
from tests.bench.large_trace import make_large_trace
from tests.bench.scratch import work_directory

MIB = 1 << 20


def main() -> None:
    """Print one table for all orders, and with the whole trace if asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=100_000_000)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=20, help="of each run; 0: up to the end")
    parser.add_argument("--directory", type=Path, help="where the trace is made (default: a temporary directory)")
    arguments = parser.parse_args()
    limit = [f"--max-seconds={arguments.seconds}"] if arguments.seconds else []
    rows = []
    with work_directory(arguments.directory) as work:
        trace = make_large_trace(work / "large.iotrace", arguments.records, arguments.threads)
        subprocess.run(["sync"], check=True)  # or the image of the first run would wait for the trace
        for order in ("thread", "resource", "recorded"):
            engine = find_binary("flextrace-replay")
            fincore = ["fincore", "--bytes", "--noheadings", "--output=RES", trace]
            cached_share = int(subprocess.check_output(fincore)) / trace.stat().st_size
            measured = measure_memory([engine, trace, f"--directory={work}/image", f"--order={order}", *limit])
            rows.append(
                {
                    "order": order,
                    "cached_share": cached_share,
                    "start_s": measured.start_s,
                    "start_cpu_s": measured.start_cpu_s,
                    "elapsed_s": measured.document["elapsed_s"],
                    "done": measured.document["operations"]["done"],
                    "skipped": measured.document["operations"]["skipped"],
                    "resident_mib": measured.resident_bytes_max / MIB,
                    "anonymous_mib": measured.anonymous_bytes_max / MIB,
                    "file_mib": measured.file_bytes_max / MIB,
                }
            )
    print(f"{arguments.records:,} records of {arguments.threads} threads")
    print(pd.DataFrame(rows).to_string(index=False, float_format=lambda value: f"{value:,.1f}"))


if __name__ == "__main__":
    main()
