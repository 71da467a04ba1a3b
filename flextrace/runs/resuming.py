# SPDX-License-Identifier: Apache-2.0
"""Turns a run of ``scale`` or ``validate`` that ends early into one that can go on, and says how."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from characterize.errors import FlextraceError, is_interrupt, remedy_of

if TYPE_CHECKING:
    from selfscale.exploring.journal import Journal


def journal_path(output: Path) -> Path:
    """Where a run keeps its points until its output is there."""
    return output.with_name(output.name + ".points.ndjson")


def check_nothing_is_lost(arguments: argparse.Namespace, output: Path) -> None:
    """Refuse to take the place of an earlier run, unless its options --resume or --force say so.

    Raises
    ------
    FlextraceError
        Its output is there, or its journal.
    """
    if arguments.resume or arguments.force:
        return
    if output.exists():
        raise FlextraceError(f"{output} exists already: choose another name, or give --force or --resume", 2)
    journal = journal_path(output)
    if journal.exists() and journal.stat().st_size:  # else it was killed before its first point
        raise FlextraceError(
            f"{journal} holds an interrupted run: continue it with --resume, forget it with --force", 2
        )


@contextmanager
def told_how_to_go_on(again: str, say: Callable[[str], None]) -> Iterator[None]:
    """For a resumed run that is interrupted before it measures."""
    try:
        yield
    except (KeyboardInterrupt, SystemError) as error:
        if is_interrupt(error):
            say(f"the run so far is kept; continue with: flextrace {again}")
        raise


def end_of(work: Callable[[], None]) -> KeyboardInterrupt | FlextraceError | OSError | None:
    """What ended some work before it was done; None if nothing did."""
    try:
        work()
    except (KeyboardInterrupt, FlextraceError, OSError) as end:
        return end
    except SystemError as error:
        if not is_interrupt(error):
            raise
        return KeyboardInterrupt()
    return None


def clean_up(stack: ExitStack, say: Callable[[str], None]) -> None:
    """Leave everything, and say what could not be cleaned up: nothing takes the place of what is told behind it."""
    if (left := end_of(stack.close)) is not None:
        say(reason_of(left))


def kept(failures: Sequence[Exception], journal: Journal, again: str) -> FlextraceError:
    """The failures of a run as one, with where is what it measured before and how to go on; else nothing is left."""
    code = failures[0].exit_code if isinstance(failures[0], FlextraceError) else 1
    told = "\n".join(map(reason_of, failures))
    if not journal.measured:
        with suppress(OSError):
            journal.remove()
        return FlextraceError(told, code)
    place, move = journal.path, ""
    if not journal.is_there():
        try:
            place, move = journal.copy_elsewhere(), f"move it to {journal.path} and "
        except OSError as error:
            return FlextraceError(f"{told}\nwhat was measured before is lost with {journal.path} ({error})", code)
    return FlextraceError(
        f"{told}\nwhat was measured before is kept in {place}; {move}continue with: flextrace {again}", code
    )


def reason_of(end: BaseException) -> str:
    """What ended a run early, in words."""
    if isinstance(end, KeyboardInterrupt):
        return "interrupted"
    return f"cannot read or write: {end}{remedy_of(end)}" if isinstance(end, OSError) else str(end)
