# SPDX-License-Identifier: Apache-2.0
"""Turns a replay into one that is recorded and compared with its original: runs it, reads the recording, compares."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from characterize.errors import FlextraceError
from characterize.expansion import ARCHIVE_SUFFIX
from replayer.recorder import check_recorder, recorder_command
from replayer.run import RecorderCommand


def recorded_replay(
    trace: Path,
    directory: Path,
    run: Callable[[RecorderCommand], dict[str, Any]],
    *,
    keep_as: Path | None = None,
    force: bool = False,
) -> dict[str, Any]:
    """Replay a trace under the recorder and compare both.

    Parameters
    ----------
    trace : Path
        A trace file.
    directory : Path
        Of the replay.
    run : callable
        Replays in two phases, the second one with `replayer.run.replay`'s ``recorder`` as the given function makes it
        of the memory group; returns the result.
    keep_as : Path, optional
        Keeps the recording in this file.
    force : bool
        Overwrite that file.

    Returns
    -------
    dict
        The document ``flextrace.replay/1`` with ``fidelity``, the document ``flextrace.fidelity/1``. What takes trust
        from the comparison takes it from the whole.

    Raises
    ------
    FlextraceError
        The file is there, recording does not work here, or the replay failed.
    """
    if keep_as is not None:
        if keep_as.suffix.lower() == ARCHIVE_SUFFIX:
            name = keep_as.with_suffix(".iotrace")
            raise FlextraceError(f"--record writes a trace file: name it {name}; 'flextrace export' archives it", 2)
        if keep_as.exists() and not force:
            raise FlextraceError(f"{keep_as} exists already: choose another name or give --force", 2)
    check_recorder(directory)

    # pandas and numba only after the cheap refusals
    from characterize.stream import open_stream  # noqa: PLC0415
    from selfscale.fidelity import fidelity_of  # noqa: PLC0415
    from selfscale.measure import trace_directory  # noqa: PLC0415

    scratch = nullcontext(None) if keep_as else tempfile.TemporaryDirectory(prefix="flextrace-", dir=trace_directory())
    with scratch as place:
        path = keep_as or Path(place or "") / "replay.iotrace"
        document = run(lambda group: recorder_command(path, directory, memory_group=group, force=force))
        fidelity = fidelity_of(open_stream(trace), open_stream(path), document)
    fidelity["recording"] = None if keep_as is None else str(keep_as)
    document["fidelity"] = fidelity
    document["reasons"] += fidelity["reasons"]
    document["trustworthy"] = document["trustworthy"] and fidelity["trustworthy"]
    return document
