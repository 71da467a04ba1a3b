# SPDX-License-Identifier: Apache-2.0
"""Turns what several traces say of themselves into what holds of all of them together.

What one of them does not know is not known of the whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from characterize.durations_of import DIFFERENT, known_durations
from characterize.durations_of import KEY as DURATIONS_OF
from characterize.loss import RECORDING_KEYS
from characterize.trace import Trace


def joint_metadata(traces: Sequence[Trace]) -> dict[str, Any]:
    """The metadata of a trace that is made of several.

    Returns
    -------
    dict
        What all of them say, such as the kernel. One trace of another tool makes the whole one (``imported``: what all
        such say, and the malformed lines of all), one without ``durations`` leaves the whole without, and flags are
        known if all know theirs. Where durations are of different requests (`characterize.durations_of`) it says so.

    Raises
    ------
    FlextraceError
        What one says of its durations is damaged.
    """
    every = [trace.header.metadata for trace in traces]
    metadata = {key: value for key, value in _common(every).items() if key not in RECORDING_KEYS}
    if any(it.get("durations") == "unknown" for it in every):
        metadata["durations"] = "unknown"
    metadata.pop(DURATIONS_OF, None)
    metadata |= _joint_durations(traces)
    if imported := [it["imported"] for it in every if "imported" in it]:
        bad_lines = sum(it.get("bad_lines", 0) for it in imported)
        metadata["imported"] = _common(imported) | ({"bad_lines": bad_lines} if bad_lines else {})
        if all("imported" not in it or it.get("flags") == "known" for it in every):
            metadata["flags"] = "known"
    return metadata


def _joint_durations(traces: Sequence[Trace]) -> dict[str, Any]:
    first, *others = map(known_durations, traces)
    if first is None or any(other != first for other in others):
        return {DURATIONS_OF: DIFFERENT}
    return first.as_metadata()


def _common(every: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    first, *others = every
    return {key: value for key, value in first.items() if all(key in it and it[key] == value for it in others)}
