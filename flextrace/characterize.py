# SPDX-License-Identifier: Apache-2.0
"""``flextrace characterize``: traces become numbers, as text or as JSON, one alone or several side by side."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from characterize.errors import FlextraceError
from characterize.kernel_start import start_kernels
from characterize.layout import HeaderFlag
from characterize.trace_files.provenance import command_words
from characterize.trace_files.trace_head import TRUNCATED
from characterize.units import parse_duration, parse_fraction, parse_size
from flextrace.options.foreign_options import add_foreign_arguments, assumptions, foreign_options, refuse_for_own
from flextrace.options.output_format import add_format_argument
from flextrace.output.talk import say

if TYPE_CHECKING:
    from characterize.characterization import Characterization
    from characterize.figure_data import FigureData
    from characterize.grouping import Grouping
    from characterize.layer_summary import Sample
    from characterize.requests import Layer

_LAYERS: dict[str, tuple[Layer, ...]] = {"vfs": ("vfs",), "block": ("block",), "both": ("vfs", "block")}
SCHEMA_OF_SEVERAL = "flextrace.characterizations/1"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb."""
    parser.add_argument(
        "files",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="trace (.iotrace), an archive of one, or a trace of another tool; several: side by side",
    )
    add_format_argument(parser)
    parser.add_argument(
        "--layer",
        choices=_LAYERS,
        default="both",
        help="the application's layer, the block layer, both (default: both)",
    )
    parser.add_argument(
        "--mmap",
        choices=("data", "all", "none"),
        default="data",
        help="accesses to mapped files that count as requests: of data (default: all but pages read of programs, "
        "libraries and other files of the operating system), all, none",
    )
    parser.add_argument(
        "--sample",
        type=sample_of,
        metavar="RATE|SIZE",
        help="estimate LRU stack depths from a share of the blocks (1%%, 0.01; of few blocks more, about 16384 at "
        "least), or from as many as fit in some memory (2MiB); default: exact",
    )
    parser.add_argument(
        "--by",
        choices=("process", "file", "device"),
        help="the same for each process, file or device, the 64 with most requests and all others",
    )
    parser.add_argument(
        "--window", type=parse_duration, metavar="TIME", help="the same for each window of time, such as 1s"
    )
    parser.add_argument(
        "--figures",
        type=Path,
        metavar="DIR",
        help="draw sizes, locality, rate and depth, offsets, files and response times of each FILE into this directory",
    )
    parser.add_argument("--figure-format", choices=("png", "svg", "pdf"), help="of the figures (default: png)")
    add_foreign_arguments(parser)
    workers = parser.add_argument_group(
        "larger than one machine (pip install 'flextrace[cluster]')",
        "All FILEs are recordings of the same time on several machines or devices and become one workload; a FILE may "
        "be a directory of archives and traces.",
    )
    where = workers.add_mutually_exclusive_group()
    where.add_argument("--workers", type=int, metavar="N", help="divide the work among N processes of this machine")
    where.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="divide it among the workers of a Dask scheduler (tcp://HOST:PORT, or its file), which see the same files",
    )


def sample_of(text: str) -> Sample:
    """What to sample: ``1%`` and ``0.01`` are a share of the blocks, ``2MiB`` is memory.

    Raises
    ------
    FlextraceError
        Neither.
    """
    from characterize.layer_summary import Sample  # noqa: PLC0415 (numba)

    if text[-1:].isalpha():
        return Sample(size_bytes=parse_size(text))
    rate = parse_fraction(text)
    if not rate:
        raise FlextraceError("a sample of no blocks says nothing: give a share above 0, such as 1%", 2)
    return Sample(rate=rate)


def run(arguments: argparse.Namespace) -> int:
    """Print the numbers; 3 if records are missing."""
    window_s, sample = arguments.window, arguments.sample
    layers = _LAYERS[arguments.layer]
    if arguments.by == "file" and "vfs" not in layers:
        raise FlextraceError("requests of the block layer have no file: give --by device, or --layer vfs", 2)
    if arguments.figure_format and not arguments.figures:
        raise FlextraceError("--figure-format is for --figures DIR: give both, or neither", 2)
    divided = arguments.workers is not None or arguments.scheduler is not None
    if not divided and (directory := next((file for file in arguments.files if file.is_dir()), None)):
        raise FlextraceError(f"{directory} is a directory: name its files, or give --workers N to make one of them", 2)
    grouped: tuple[Layer, ...] = ("vfs",) if arguments.by == "file" else layers

    start_kernels()
    from characterize.characterization import characterize  # noqa: PLC0415 (pandas is slow to import)
    from characterize.grouping import Grouping  # noqa: PLC0415
    from characterize.stream import open_stream  # noqa: PLC0415

    shown = [_name_of_set(arguments.files)] if divided else arguments.files
    figures = _figure_paths(arguments, shown, layers) if arguments.figures else {}
    grouping = Grouping(arguments.by, window_s, grouped) if arguments.by or window_s is not None else None
    results, complete = [], True
    if divided:
        results.append(_divided(arguments, sample, grouping, figures))
    for file in [] if divided else arguments.files:
        refuse_for_own(arguments, file)
        stream = open_stream(file, foreign=foreign_options(arguments))
        if assumed := assumptions(stream.facts):
            say("characterize", f"{file}: {assumed}")
        results.append(characterize(stream, arguments.mmap, sample=sample, grouping=grouping))
        if file in figures:
            from characterize.figure_data import figure_data_of  # noqa: PLC0415

            _write_figures(figure_data_of(stream, results[-1]), figures[file])
    if arguments.format == "json":
        _print_documents(results, layers)
    else:
        _print_text(results, layers)
    for result in results:
        if missing := _missing(result):
            complete = False
            say("characterize", f"{result.provenance['input']['path']}: {missing}")
    return 0 if complete else 3


def _missing(result: Characterization) -> str:
    """What a trace lacks, and what to do about it; empty where nothing is missing."""
    if result.trustworthy:
        return ""
    if bad_lines := result.trace["lineage"].get("imported", {}).get("bad_lines"):
        return f"{bad_lines} malformed lines were left out; these numbers are not trustworthy"
    if any(TRUNCATED in warning for warning in result.warnings):
        return "its end is missing; these numbers are not trustworthy: use another copy of it"
    if HeaderFlag.INCOMPLETE.name in result.trace["flags"]:
        return "what its recorder still held is missing, uncounted; these numbers are not trustworthy: record again"
    exact = ", ".join(result.layers["vfs"].from_totals)
    but = f" (but {exact} of the application, which are exact)" if exact else ""
    if not result.lost:
        return f"records are missing, uncounted; these numbers are not trustworthy{but}: record again"
    return (
        f"{sum(result.lost.values())} records were LOST while recording; these numbers are not trustworthy{but}: "
        "record again with a larger --ring-bytes or --max-files, whichever the recorder asked for"
    )


def _name_of_set(files: list[Path]) -> Path:
    """What several recordings that are one workload are called."""
    if len(files) > 1:
        return Path("recordings")
    # The current directory has no name as it is given.
    return files[0].resolve() if files[0].is_dir() else files[0]


def _figure_paths(
    arguments: argparse.Namespace, files: list[Path], layers: tuple[Layer, ...]
) -> dict[Path, dict[tuple[Layer, str], Path]]:
    """Where the figures of every file go; refuses before the work what would fail after it."""
    from characterize.plots import check_matplotlib, figure_paths  # noqa: PLC0415 (only where figures are drawn)

    check_matplotlib()
    paths = [figure_paths(arguments.figures, file, layers, arguments.figure_format or "png") for file in files]
    _check_directory(arguments.figures)
    every = [path for one in paths for path in one.values()]
    if len(set(every)) < len(every):
        raise FlextraceError("files of equal names would share their figures: give one --figures DIR to each", 2)
    if there := next((path for path in every if path.exists()), None):
        raise FlextraceError(f"{there} exists already: choose another directory", 2)
    return dict(zip(files, paths, strict=True))


def _check_directory(directory: Path) -> None:
    """Refuse one in which no figure can be written; it is made with the first one, not where no trace can be read."""
    there = next(place for place in (directory, *directory.absolute().parents) if os.path.lexists(place))
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        why = "not writable" if there.is_dir() else "no directory"
        raise FlextraceError(f"cannot write figures to {directory}: {there} is {why}; choose another place")


def _write_figures(data: dict[Layer, FigureData], paths: dict[tuple[Layer, str], Path]) -> None:
    from characterize.plots import write_figures  # noqa: PLC0415

    for path in write_figures(data, paths):
        say("characterize", f"figure {path}")


def _divided(
    arguments: argparse.Namespace,
    sample: Sample | None,
    grouping: Grouping | None,
    figures: dict[Path, dict[tuple[Layer, str], Path]],
) -> Characterization:
    """The numbers of all files as one workload, made by several processes, and its figures."""
    from characterize.cluster.characterize_set import characterize_recordings  # noqa: PLC0415
    from characterize.cluster.engine import dask_engine  # noqa: PLC0415 (Dask is an extra)
    from characterize.cluster.figures import figure_data_of_set  # noqa: PLC0415
    from characterize.cluster.recording_set import open_set  # noqa: PLC0415

    if foreign_options(arguments) is not None:
        raise FlextraceError("a trace of another tool is not divided among workers: 'flextrace import' it first", 2)
    # Workers elsewhere have another working directory.
    files = [file.absolute() for file in arguments.files] if arguments.scheduler else arguments.files
    with dask_engine(arguments.scheduler, arguments.workers) as (engine, parts):
        recordings = open_set(files, engine=engine, parts=parts)
        numbers = characterize_recordings(recordings, arguments.mmap, sample=sample, grouping=grouping)
        for paths in figures.values():
            _write_figures(figure_data_of_set(recordings, numbers), paths)
    return numbers


def _print_documents(results: list[Characterization], layers: tuple[str, ...]) -> None:
    command = command_words()
    documents = []
    for result in results:
        document = result.as_document()
        document["command"] = command
        document["layers"] = {name: document["layers"][name] for name in layers}
        documents.append(document)
        for warning in result.warnings:
            say("characterize", f"warning: {warning}")
    several = {"schema": SCHEMA_OF_SEVERAL, "command": command, "traces": documents}
    print(json.dumps(documents[0] if len(documents) == 1 else several, indent=1, allow_nan=False))


def _print_text(results: list[Characterization], layers: tuple[str, ...]) -> None:
    from characterize.side_by_side import render_compared, render_groups  # noqa: PLC0415
    from characterize.text import render  # noqa: PLC0415

    if len(results) == 1:
        print(render(results[0], layers))
    else:
        print(render_compared(results, layers))
        for result in results:
            for warning in result.warnings:
                say("characterize", f"warning: {result.provenance['input']['path']}: {warning}")
    for result in results:
        if result.groups:
            if len(results) > 1:
                print(f"\n{result.provenance['input']['path']}")
            print("\n".join(render_groups(result.groups)))
