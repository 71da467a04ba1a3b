# SPDX-License-Identifier: Apache-2.0
"""Turns the options of ``scale`` about how requests reach storage into an `Access`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from characterize.errors import FlextraceError
from characterize.units import parse_fraction, parse_size
from flextrace.options.write_options import add_write_arguments, check_write_arguments

if TYPE_CHECKING:
    from selfscale.measuring.access import Access

DEPTH_MAX = 4096
"""Requests in flight per thread that the replay engine takes (replayer/engine/ring.h)."""


def add_arguments(group: argparse._ArgumentGroup) -> None:
    """The options."""
    group.add_argument(
        "--direct", action="store_true", help="with O_DIRECT on the files of DIR: their device without the page cache"
    )
    add_write_arguments(group, "write DEV as well, which destroys what is on it")
    group.add_argument(
        "--fill",
        action="store_true",
        help="write all that is to be measured of DEV once before, outside the budget: flash that was never written or "
        "was discarded answers reads without a look at its cells; needs --write",
    )
    group.add_argument(
        "--span",
        type=parse_size,
        metavar="SIZE",
        help="largest uniqueBytes with --direct (default: up to 1G, by the budget and the room) or --device (all)",
    )
    group.add_argument(
        "--engine",
        choices=("auto", "sync", "io_uring"),
        default="auto",
        help="what issues requests: sync: calls; io_uring; auto: io_uring with --depth, else calls (default)",
    )
    group.add_argument(
        "--depth", type=int, metavar="N", help="keep N requests in flight in each process, by io_uring (default: 1)"
    )
    group.add_argument(
        "--sync-frac",
        type=parse_fraction,
        default=0.0,
        metavar="SHARE",
        help="have the process sync its file (fdatasync) behind such a share of the writes; throughput is with the "
        "time of that (default: 0)",
    )
    group.add_argument("--dsync", action="store_true", help="write with O_DSYNC: each write waits until it is stable")


def access_of(arguments: argparse.Namespace) -> Access:
    """What they say."""
    from selfscale.measuring.access import Access  # noqa: PLC0415

    mode = "device" if arguments.device else "direct" if arguments.direct else "buffered"
    writes = arguments.write or not arguments.device
    # With --engine auto a kernel that refuses io_uring would make one request at a time of --depth.
    engine = "io_uring" if arguments.depth is not None else arguments.engine
    return Access(mode, arguments.device, writes, engine, arguments.depth, arguments.sync_frac, arguments.dsync)


def check(arguments: argparse.Namespace) -> None:
    """Refuse options that do not go together.

    Raises
    ------
    FlextraceError
    """
    check_write_arguments(arguments.device, arguments.write, arguments.confirm)
    if arguments.fill and not arguments.write:
        raise FlextraceError("--fill writes a whole --device: give --write and --confirm as well", 2)
    uncached = arguments.direct or arguments.device
    if arguments.memory and uncached:
        raise FlextraceError("--memory bounds the page cache, which direct I/O does not use: leave it out", 2)
    if arguments.direct and arguments.device:
        raise FlextraceError("--direct is for files; requests to a --device go by no page cache anyway", 2)
    if arguments.span is not None and not uncached:
        raise FlextraceError("--span is for --direct and --device: else the page cache gives the range", 2)
    if arguments.depth is not None and (not 1 <= arguments.depth <= DEPTH_MAX or arguments.engine == "sync"):
        raise FlextraceError(f"--depth needs a number from 1 to {DEPTH_MAX}, and io_uring: leave --engine sync out", 2)
    if arguments.dsync and arguments.sync_frac:
        raise FlextraceError("--dsync makes every write stable, so that a sync has nothing to do: give one of both", 2)
    if arguments.device and not arguments.write and (arguments.dsync or arguments.sync_frac):
        raise FlextraceError("--sync-frac and --dsync are for writes, and a --device is only read without --write", 2)


def same(arguments: argparse.Namespace) -> list[str]:
    """The words of a command line that say the same."""
    words: list[str] = []
    words += ["--direct"] if arguments.direct else []
    words += ["--write", "--confirm", arguments.confirm] if arguments.write else []
    words += ["--fill"] if arguments.fill else []
    words += ["--engine", arguments.engine] if arguments.engine != "auto" else []
    for name in ("span", "depth"):
        words += [f"--{name}", str(getattr(arguments, name))] if getattr(arguments, name) is not None else []
    words += ["--sync-frac", f"{arguments.sync_frac!r}"] if arguments.sync_frac else []
    words += ["--dsync"] if arguments.dsync else []
    return words
