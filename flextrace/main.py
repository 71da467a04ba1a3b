# SPDX-License-Identifier: Apache-2.0
"""Turns a command line into one call of a verb's ``run`` and its outcome into an exit code.

A verb is a module of this package with the same name that has ``add_arguments(parser)`` and ``run(arguments) -> int``.
It is imported only when it is used, so that ``record`` and ``replay`` start without pandas.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import sys
from typing import Any

from characterize.errors import FlextraceError, is_interrupt, remedy_of
from flextrace import EXIT_INTERRUPTED
from flextrace.output.standard_error import keep_standard_error
from flextrace.output.standard_output import name_standard_output
from flextrace.output.talk import say

VERBS = {
    "doctor": "say whether recording works here, what is lost, and what to do about it",
    "record": "trace a running application, at the VFS and the block layer",
    "info": "show what a trace says of itself: origin, losses, lineage",
    "characterize": "reduce a trace to uniqueBytes, seqFrac, readFrac, sizeMean, processNum and more",
    "alter": "make a flexible trace: one parameter changed, the others held",
    "cut": "take a part of a trace: a time, threads, processes, files, devices",
    "merge": "let several traces run at the same time, on files of their own",
    "repeat": "let a trace run several times, one after the other",
    "clone": "let a trace run several times at once, each on files of its own",
    "willy": "make a synthetic trace from the five parameters",
    "replay": "run a trace in a directory or on a block device",
    "scale": "measure this machine once: the self-scaling benchmark",
    "fit": "turn anybody's table of measurements into a profile to predict from",
    "predict": "estimate a workload's throughput, or an application's and its elapsed time, on a measured machine",
    "rank": "say which of several measured machines suits an application",
    "validate": "measure how good predictions from a profile are: random workloads on its machine",
    "compare": "one table: application, its replay, Willy, prediction",
    "report": "draw profiles, traces, comparisons and recorded replays as one HTML file",
    "export": "turn a trace into an archive (Parquet), a table (CSV), fio jobs or a timeline, also without its names",
    "import": "turn a trace of another tool, or an archive, into a flextrace trace",
}

COLLECT_AT_OBJECTS = 100_000
NO_CACHE = "cannot cache function"
"""Begins what numba says of a program that may write neither where its code is nor to its home."""
EXIT_CODES = "exit codes: 0 ok, 1 failed, 2 usage, 3 the result is not trustworthy (it says why), 130 interrupted"


class Parser(argparse.ArgumentParser):
    """A parser whose errors of values that are not understood name the option, and of unknown options the verb."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse what is unknown here, where the usage is that of the verb."""
        known, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return known, unknown

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        try:
            return super()._get_value(action, arg_string)
        except FlextraceError as error:
            name = "/".join(action.option_strings) or str(action.metavar or action.dest)
            raise FlextraceError(f"{name}: {error}", error.exit_code) from error


def make_parser(verb: str | None = None) -> argparse.ArgumentParser:
    """Build the parser; with the options of one verb only, since the others are not imported."""
    parser = Parser(
        prog="flextrace",
        description="What is an application's I/O like, what if it changed, how fast would it run on another machine?",
        epilog=EXIT_CODES,
    )
    if verb is None:
        from characterize.trace_files.provenance import tool_version  # noqa: PLC0415 (not where a verb is to start)

        parser.add_argument("--version", action="version", version=f"flextrace {tool_version()}")
    subparsers = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name, summary in VERBS.items():
        description = f"{summary[0].upper()}{summary[1:]}."
        subparser = subparsers.add_parser(name, help=summary, description=description, epilog=EXIT_CODES)
        if name == verb:
            module = importlib.import_module(f"flextrace.{name if name != 'import' else 'import_'}")
            module.add_arguments(subparser)
            subparser.set_defaults(run=module.run)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run one verb, by default of the command line; every `FlextraceError` becomes one message and its exit code."""
    argv = sys.argv[1:] if argv is None else argv
    # Imports make many objects and no garbage; looking for it time and again took a tenth of a verb's start.
    gc.set_threshold(COLLECT_AT_OBJECTS)
    keep_standard_error()
    name_standard_output()
    verb = next((word for word in argv if not word.startswith("-")), None)
    try:
        try:
            arguments = make_parser(verb if verb in VERBS else None).parse_args(argv)
        except SystemExit:
            _flush()  # the help
            raise
        from flextrace.runs.interruption import terminated_as_interrupted  # noqa: PLC0415 (not for the help)

        with terminated_as_interrupted():
            exit_code = arguments.run(arguments)
            _flush()
        return exit_code
    except FlextraceError as error:
        say(verb, str(error))
        return error.exit_code
    except (KeyboardInterrupt, SystemError) as interrupt:
        if not is_interrupt(interrupt):
            raise
        # What was being made when it came may fail once more when it is freed, which says nothing to a user.
        sys.unraisablehook = lambda _: None
        say(verb, "\n".join(["interrupted", *_notes(interrupt)]))
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of our output (head, less) has enough.
        return 0
    except OSError as error:
        say(verb, "\n".join([f"cannot read or write: {error}{remedy_of(error)}", *_notes(error)]))
        return 1
    except RuntimeError as error:
        if not str(error).startswith(NO_CACHE):
            raise
        remedy = "set NUMBA_CACHE_DIR to a directory that you may write, in which they are kept"
        say(verb, f"no place for compiled functions, neither beside their code nor in your home: {remedy}")
        return 1
    except MemoryError as error:
        say(verb, f"there is not enough memory: {str(error) or 'ask for less at once'}")
        return 1


def _notes(error: BaseException) -> list[str]:
    """What else failed, such as to clean up (`replayer.running.confine.told_behind`)."""
    return list(getattr(error, "__notes__", []))


def _flush() -> None:
    if sys.stdout:  # None where it was closed: nobody wants to read it
        sys.stdout.flush()
