# SPDX-License-Identifier: Apache-2.0
"""Turns a replay into one that is recorded and compared with its original: runs it, reads the recording, compares."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from characterize.errors import FlextraceError, is_interrupt
from characterize.trace_files.expansion import ARCHIVE_SUFFIX
from characterize.trace_files.new_file import check_new_file
from replayer.run import INTERRUPTED, RecorderCommand
from replayer.running.recorder import check_recorder, recorder_command


def recorded_replay(
    trace: Path,
    directory: Path,
    run: Callable[[RecorderCommand], dict[str, Any]],
    cleanup: ExitStack,
    *,
    original: Path | None = None,
    keep_as: Path | None = None,
    force: bool = False,
    on_compare: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Replay a trace under the recorder and compare both.

    Parameters
    ----------
    trace : Path
        A trace file.
    directory : Path
        Of the replay, or its block device.
    run : callable
        Replays, with `replayer.run.replay`'s ``recorder`` as the given function makes it of the memory group; returns
        the result.
    cleanup : ExitStack
        Removes a recording that is not kept when it is closed: not before the result has been told.
    original : Path, optional
        The trace that this one was made of, for a block device (`replayer.devices.device_trace`).
    keep_as : Path, optional
        Keeps the recording in this file.
    force : bool
        Overwrite that file.
    on_compare : callable
        Called when the replay has come to its end.

    Returns
    -------
    dict
        The document ``flextrace.replay/1`` with ``fidelity``, the document ``flextrace.fidelity/1``. What takes trust
        from the comparison takes it from the whole. Where the comparison failed, or was interrupted, the document has
        ``fidelity_missing`` instead, which says so.

    Raises
    ------
    FlextraceError
        The file is there, recording does not work here, there is no room for it, or the replay failed.
    """
    if keep_as is not None:
        if keep_as.suffix.lower() == ARCHIVE_SUFFIX:
            name = keep_as.with_suffix(".iotrace")
            raise FlextraceError(f"--record writes a trace file: name it {name}; 'flextrace export' archives it", 2)
        check_new_file(keep_as, force=force)
    if original:
        directory = directory.resolve()  # a name of udev's; files are recorded by their own
    check_recorder(directory)

    # pandas and numba only after the cheap refusals
    from characterize.stream import open_stream  # noqa: PLC0415
    from selfscale.comparing.device_fidelity import device_fidelity_of  # noqa: PLC0415
    from selfscale.comparing.fidelity import fidelity_of  # noqa: PLC0415
    from selfscale.measuring.scratch import recording_bytes, scratch_directory  # noqa: PLC0415

    path = keep_as
    if path is None:
        by_name = ", or name a file elsewhere: --record REPLAY.iotrace"
        place = scratch_directory(recording_bytes(trace), "the recording of the replay", by_name)
        scratch = tempfile.TemporaryDirectory(prefix="flextrace-", dir=place)
        path = Path(cleanup.enter_context(scratch)) / "replay.iotrace"
    document = run(lambda group: recorder_command(path, directory, memory_group=group, force=force))
    fidelity, missing = None, document.get("fidelity_missing")
    try:
        if missing is None:
            on_compare()
            if original:
                fidelity = device_fidelity_of(open_stream(original), open_stream(trace), open_stream(path), document)
            else:
                fidelity = fidelity_of(open_stream(trace), open_stream(path), document)
    except (KeyboardInterrupt, Exception) as error:  # whatever it is, the replay itself has come to its result
        told = str(error) if isinstance(error, FlextraceError) else f"{type(error).__name__}: {error}"
        missing = INTERRUPTED if is_interrupt(error) else told
    if fidelity is not None:
        fidelity["recording"] = None if keep_as is None else str(keep_as)
        document["fidelity"] = fidelity
        document["reasons"] += fidelity["reasons"]
        document["trustworthy"] = document["trustworthy"] and fidelity["trustworthy"]
        return document
    kept = "" if keep_as is None else f"; the recording is {keep_as}"
    document["fidelity_missing"] = missing
    document["reasons"].append(f"the replay was not compared with the trace: {missing}{kept}")
    document["trustworthy"] = False
    return document
