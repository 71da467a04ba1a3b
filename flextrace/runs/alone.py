# SPDX-License-Identifier: Apache-2.0
"""Turns a directory, or the file of a run's points, into one that no other run uses meanwhile."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from characterize.errors import FlextraceError


@contextlib.contextmanager
def alone_in(directory: Path) -> Iterator[None]:
    """Keep others out of a directory: the first one to end would remove the files that the other one measures.

    Raises
    ------
    FlextraceError
        Somebody measures, or replays, in it.
    """
    with _alone(os.open(directory, os.O_RDONLY | os.O_DIRECTORY), directory, "give another directory"):
        yield


@contextlib.contextmanager
def alone_with(journal: Path, *, resume: bool) -> Iterator[None]:
    """Keep others from the file of a run's points: each would go on behind those that were there when it began.

    It is made if it is not there, and goes again if nothing was written to it.

    Parameters
    ----------
    journal : Path
    resume : bool
        It is not made: who reads it says that there is none.

    Raises
    ------
    FlextraceError
        Another run has it.
    """
    if resume and not journal.exists():
        yield
        return
    descriptor = os.open(journal, os.O_RDWR | (0 if resume else os.O_CREAT), 0o666)
    with _alone(descriptor, journal, "choose another --output"):
        try:
            yield
        finally:
            if not os.fstat(descriptor).st_size:
                journal.unlink(missing_ok=True)


@contextlib.contextmanager
def _alone(descriptor: int, path: Path, remedy: str) -> Iterator[None]:
    """Keep others from what is open, and close it."""
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise FlextraceError(f"{path} is used by another run of flextrace: wait for it, or {remedy}") from error
        except OSError:
            pass  # a file system without locks
        yield
    finally:
        os.close(descriptor)
