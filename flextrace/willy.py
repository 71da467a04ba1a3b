# SPDX-License-Identifier: Apache-2.0
"""``flextrace willy``: five numbers become a synthetic trace, and what it achieves is measured and printed."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from characterize.errors import FlextraceError
from characterize.trace_files.provenance import command_words, provenance_of, sha256_of
from characterize.units import parse_fraction, parse_seed, parse_size
from flextrace.options.made_trace import add_output_arguments, read_parents, show_parameter, tell_next

SCHEMA = "flextrace.willy/1"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb."""
    workload = parser.add_argument_group("workload (Chen 1992, 3.4.1)")
    workload.add_argument("--unique-bytes", type=parse_size, required=True, metavar="SIZE", help="all data, as 64MiB")
    workload.add_argument("--seq-frac", type=parse_fraction, required=True, metavar="SHARE", help="sequential share")
    workload.add_argument("--read-frac", type=parse_fraction, required=True, metavar="SHARE", help="share of reads")
    workload.add_argument("--size-mean", type=parse_size, required=True, metavar="SIZE", help="per request, as 16K")
    workload.add_argument("--process-num", type=int, default=1, metavar="N", help="processes (default: 1)")

    shape = parser.add_argument_group("what the five leave open")
    shape.add_argument("--requests", type=int, metavar="N", help="default: 4 x what the five need, 10000 at least")
    shape.add_argument(
        "--depth-family",
        choices=("uniform", "binomial", "empirical"),
        default="uniform",
        help="of the LRU stack depths; uniform is random access (default), binomial the thesis's words, "
        "empirical that of --like",
    )
    shape.add_argument(
        "--size-family",
        choices=("binomial", "bernoulli", "fixed", "empirical"),
        default="binomial",
        help="of the request sizes; bernoulli has a coefficient of variation of 1, empirical that of --like "
        "(default: binomial)",
    )
    shape.add_argument(
        "--like",
        type=Path,
        metavar="TRACE",
        help="trace to draw empirical depths (by share of the data) and sizes from",
    )
    shape.add_argument(
        "--sync-frac",
        type=parse_fraction,
        default=0.0,
        metavar="SHARE",
        help="fdatasyncs per write (default: 0)",
    )
    shape.add_argument(
        "--align-bytes", type=parse_size, default=4096, metavar="SIZE", help="of offsets, sizes (default: 4096)"
    )
    shape.add_argument("--seed", type=parse_seed, default=0, metavar="N", help="equal seed, equal trace (default: 0)")
    add_output_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Write the trace, print its parameters as wanted and as measured; 3 if what it is drawn from lacks records."""
    from characterize import trace as trace_file  # noqa: PLC0415 (pandas is slow to import)
    from characterize.workload import PARAMETERS, Workload, workload_of  # noqa: PLC0415
    from replayer.synthetic.source_shape import EMPIRICAL, source_shape_of  # noqa: PLC0415
    from replayer.willy import make_trace  # noqa: PLC0415

    like = arguments.like
    if (like is not None) != (EMPIRICAL in {arguments.depth_family, arguments.size_family}):
        raise FlextraceError("--depth-family and --size-family empirical are drawn from --like TRACE: give both", 2)
    parents = read_parents(arguments, [like] if like else [])
    wanted = Workload(
        float(arguments.unique_bytes),
        arguments.seq_frac,
        arguments.read_frac,
        float(arguments.size_mean),
        float(arguments.process_num),
    )
    trace = make_trace(
        wanted,
        requests=arguments.requests,
        depth=arguments.depth_family,
        size=arguments.size_family,
        like=source_shape_of(parents[0]) if parents else None,
        seed=arguments.seed,
        align_bytes=arguments.align_bytes,
        sync_frac=arguments.sync_frac,
    )
    if like:
        trace.header.metadata["like"] = {"path": str(like), "sha256": sha256_of(like)}
    trace.header.metadata["command"] = command_words()
    trace_file.write(trace, arguments.output, force=arguments.force)
    asked, achieved = wanted.as_document(), workload_of(trace).as_document()
    requests = len(trace.requests)
    if arguments.format == "json":
        document = {
            "schema": SCHEMA,
            "output": str(arguments.output),
            "requests": requests,
            "wanted": asked,
            "achieved": achieved,
            "made": trace.header.metadata,
            **provenance_of(None),
        }
        print(json.dumps(document, indent=1, allow_nan=False))
    else:
        print(f"{'parameter':<12} {'wanted':>14} {'achieved':>14}")
        for name in PARAMETERS:
            print(f"{name:<12} {show_parameter(name, asked[name]):>14} {show_parameter(name, achieved[name]):>14}")
        print(f"{'requests':<12} {arguments.requests or '':>14} {requests:>14}")
    tell_next(arguments, trace)
    return 0 if all(parent.header.complete for parent in parents) else 3
