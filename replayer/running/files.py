# SPDX-License-Identifier: Apache-2.0
"""Turns a trace into a replay in files, which are gone behind it: confined, and recorded.

A recorded one is two runs of the engine, since a recording is of the run and not of its preparation: the first one lays
out the files. The directory is locked from before it until the second has ended. Pages stay charged to whoever read
them first, so the engine joins a memory group behind that.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from characterize.errors import FlextraceError
from replayer.run import OnInterval, RecorderCommand, replay
from replayer.running.binaries import find_binary
from replayer.running.confine import MemoryGroup, told_behind
from replayer.running.engine_options import EngineOptions

IMAGE_MARKER = ".flextrace-image"
"""Of the engine (replayer/engine/image_seal.h): a directory that has it holds files that a replay made."""


def remove_image(directory: Path) -> None:
    """Have the engine remove what it has laid out in a directory, if there is something, and nothing else.

    Raises
    ------
    FlextraceError
        Some of it is still there.
    """
    if not os.path.exists(directory / IMAGE_MARKER):
        return
    command = [str(find_binary("flextrace-replay")), "--phase=remove", f"--directory={directory}"]
    # In a session of its own no Ctrl-C reaches it: it goes on to its end also if this process no longer waits for it.
    remover = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
        errors="replace",
    )
    _, said = remover.communicate()
    if remover.returncode:
        why = said.strip().removeprefix("flextrace-replay: ") or f"exit status {remover.returncode}"
        raise FlextraceError(f"files of the replay are left in {directory}: {why}; remove them")


class LaidOut:
    """Files of a replay in a directory, which are gone after the ``with`` block, and so is the directory if it is new.

    Attributes
    ----------
    is_new : bool
        Whether the directory is.
    mine : bool
        Whether the files are to go: not those that are to stay, nor as long as there are those of an earlier replay.
    """

    def __init__(self, directory: Path, *, keep: bool = False) -> None:
        # Of what may not be looked at the engine says so.
        self._directory, self.is_new = directory, not os.path.exists(directory)
        self.mine = not keep and not os.path.exists(directory / IMAGE_MARKER)

    def __enter__(self) -> Self:
        return self

    def used_by(self, document: dict[str, Any]) -> dict[str, Any]:
        """The result of a replay in them, which has removed them: what is there later is another one's.

        If its storage does not answer, the engine removes them when that does.
        """
        if "unanswered" in document:
            self.mine = self.is_new = False
        elif not os.path.exists(self._directory / IMAGE_MARKER):
            self.mine = False
        return document

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with told_behind(error):
            if self.mine:
                remove_image(self._directory)
        if self.is_new:
            with suppress(OSError):  # it is not there, or somebody put something into it
                self._directory.rmdir()


@contextmanager
def _locked(directory: Path) -> Iterator[int | None]:
    """A descriptor of a directory that no other replay gets while it is open, here or in an engine that inherits it.

    The directory is made if it is not there. None where that cannot be, which the engine tells.
    """
    try:
        with suppress(FileExistsError):
            os.mkdir(directory, 0o755)
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        yield None
        return
    try:
        with suppress(OSError):  # somebody has it, which the engine tells
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield descriptor
    finally:
        os.close(descriptor)


def replay_in_files(
    trace: Path,
    directory: Path,
    options: EngineOptions,
    cleanup: ExitStack,
    *,
    memory_bytes: int | None = None,
    recorder: RecorderCommand | None = None,
    on_interval: OnInterval | None = None,
) -> dict[str, Any]:
    """Replay a trace in a directory, if that is wanted in a memory group, or recorded, or both.

    Parameters
    ----------
    trace, directory : Path
    options : EngineOptions
        Without ``keep_image`` the files are removed, whatever comes.
    cleanup : ExitStack
        Removes group and files, unless the engine has, when it is closed: not before the result has been told, which it
        must not cost.
    memory_bytes : int, optional
        Limit of the group.
    recorder : callable, optional
    on_interval : callable, optional
        As of `replayer.run.replay`.

    Returns
    -------
    dict
        The document ``flextrace.replay/1``.

    Raises
    ------
    FlextraceError
        As from `replayer.run.replay`, or the group cannot be made.
    """
    keep = bool(options.get("keep_image"))
    files = cleanup.enter_context(LaidOut(directory, keep=keep))
    # Left before the files are removed: it ends who still uses them, unless that is to remove them itself.
    group = cleanup.enter_context(MemoryGroup(memory_bytes)) if memory_bytes else None
    run = partial(replay, trace, directory, memory_group=group, on_interval=on_interval, finish_on_signal=True)
    if recorder is None:
        document = run(**options)
    else:
        with _locked(directory) as descriptor:
            files.mine |= files.is_new  # a layout that comes to nothing goes, also where it was to stay
            # With all options, so that those which do not go together are refused before anything is laid out.
            built = replay(trace, directory, locked=descriptor, **(options | {"phase": "prepare"}))
            files.mine = not keep
            document = run(recorder=recorder(group), locked=descriptor, **(options | {"phase": "run"}))
        document["image"]["built_bytes"] = built["image"]["built_bytes"]
    if group is not None and "unanswered" in document:
        group.let_go()
    return files.used_by(document)
