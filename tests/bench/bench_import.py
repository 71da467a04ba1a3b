# SPDX-License-Identifier: Apache-2.0
"""Measures how many lines of other tools' traces ``import`` and ``characterize`` read a second, and their memory.

The lines are made here, of random requests to a few places; two lengths, so that memory that grows with the length and
not with the blocks shows. The start of the program is in the rates, which are those of the longer file. Processor time
says more than elapsed time where something else runs on the machine.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator

import numpy as np

from tests.bench.scratch import work_directory
from tests.bench.verb_run import run_verb

MIB = 1 << 20
SEED = 7
MADE_AT_ONCE = 1 << 16
VERBS = ["import", "characterize"]
PLACES, PLACE_SECTORS = 10**4, 10**4
# start ns, device, read, sector, sectors
Row = tuple[int, int, int, int, int]


def _blkparse(row: Row) -> str:
    at, _, read, sector, sectors = row
    line = "  8,0 1 1 {}.{:09d} {}  {}   {} {} + {} {}\n"
    events = (("Q", 0, 77, "[fio]"), ("D", 500, 77, "[fio]"), ("C", 90_000, 0, "[0]"))
    return "".join(
        line.format((at + later) // 10**9, (at + later) % 10**9, thread, letter, "WR"[read], sector, sectors, end)
        for letter, later, thread, end in events
    )


LINES: dict[str, tuple[str, Callable[[Row], str]]] = {
    "msr": (
        "",
        lambda r: (
            f"{128166372003061629 + r[0] // 100},h,{r[1]},{('Write', 'Read')[r[2]]},{r[3] * 512},{r[4] * 512},9\n"
        ),
    ),
    "alibaba": ("", lambda r: f"{r[1]},{'WR'[r[2]]},{r[3] * 512},{r[4] * 512},{1577808000000000 + r[0] // 1000}\n"),
    "tencent": ("", lambda r: f"{1538323200 + r[0] // 10**9},{r[3]},{r[4]},{1 - r[2]},{r[1]}\n"),
    "spc": ("", lambda r: f"{r[1]},{r[3]},{r[4] * 512},{'WR'[r[2]]},{r[0] / 1e9:.6f}\n"),
    "disksim": ("", lambda r: f"{r[0] / 1e6:.6f} {r[1]} {r[3]} {r[4]} {r[2]}\n"),
    "fio": (
        "fio version 3 iolog\n",
        lambda r: f"{r[0] // 1000} /data/f{r[1]} {('write', 'read')[r[2]]} {r[3] * 512} {r[4] * 512}\n",
    ),
    "blkparse": ("", _blkparse),
    "strace": (
        '10 1700000000.000000 openat(AT_FDCWD, "/data/x", O_RDWR) = 3 <0.000010>\n',
        lambda r: (
            f"10 {1700000000 + r[0] // 10**9}.{r[0] % 10**9 // 1000:06d} "
            f'pread64(3, "abcdefghijklmnopqrstuvwxyzabcdef"..., {r[4] * 512}, {r[3] * 512}) = {r[4] * 512} <0.000005>\n'
        ),
    ),
}


def rows(count: int) -> Iterator[Row]:
    """Random requests in the order of their starts, 10 us apart on average."""
    random = np.random.default_rng(SEED)
    at = 0
    for first in range(0, count, MADE_AT_ONCE):
        size = min(MADE_AT_ONCE, count - first)
        starts = at + np.cumsum(random.integers(1, 20_000, size))
        at = int(starts[-1])
        device, read, place = (random.integers(0, limit, size) for limit in (9, 2, PLACES))
        columns = (starts, device, read, place * PLACE_SECTORS, random.integers(1, 200, size))
        yield from zip(*(column.tolist() for column in columns), strict=True)


def main() -> None:
    """Print a line for each format and verb."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=2_000_000, help="in the longer file (default: 2000000)")
    parser.add_argument("--formats", nargs="+", choices=LINES, default=list(LINES))
    parser.add_argument("--verbs", nargs="+", choices=VERBS, default=VERBS)
    arguments = parser.parse_args()
    titles = ("verb", "lines", "lines/s", "lines/s of processor time", "peak MiB, a quarter", "all")
    print(f"{'format':<10}{titles[0]:<13}{titles[1]:>10}{titles[2]:>12}{titles[3]:>27}{titles[4]:>22}{titles[5]:>7}")
    for name in arguments.formats:
        head, line = LINES[name]
        lines = arguments.requests * line((0, 0, 0, 0, 1)).count("\n")
        with work_directory(None) as place:
            path, output = place / "trace", ["-o", place / "o.iotrace", "--force"]
            measured = []
            for count in (arguments.requests // 4, arguments.requests):
                with path.open("w") as stream:
                    stream.write(head)
                    stream.writelines(line(row) for row in rows(count))
                measured.append(
                    [run_verb(verb, path, *(output if verb == "import" else [])) for verb in arguments.verbs]
                )
        for verb, short, all_ in zip(arguments.verbs, *measured, strict=True):
            print(
                f"{name:<10}{verb:<13}{lines:>10}{lines / all_.elapsed_s:>12.3g}{lines / all_.processor_s:>27.3g}"
                f"{short.peak_bytes / MIB:>22.0f}{all_.peak_bytes / MIB:>7.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
