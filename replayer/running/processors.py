# SPDX-License-Identifier: Apache-2.0
"""Turns what a recording says of its processors into how a replay thinks.

For how long at a time it computes, what it computes for others, and which part of the time was the recorder's.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from characterize.layout import HEADER_DTYPE
from characterize.shape import finite
from characterize.trace_files.trace_head import json_text, read_head
from replayer.running.engine_options import EngineOptions

RECORDING_US_MIN, RECORDING_US_MAX = 1e-3, 1e3
OTHERS_MAX = 256
BURST_US_MIN, BURST_US_MAX = 1.0, 1e6
OTHERS_MIN = 0.01
"""Processors; less is nothing that a replay could feel."""


def processor_options(
    trace_path: str | os.PathLike[str], *, computing: bool = True, others: bool = True
) -> EngineOptions:
    """How the threads of a replay think, as the recording says (docs/decisions/0010).

    Parameters
    ----------
    trace_path : path-like
    computing : bool
        They compute, and do not only sleep.
    others : bool
        Also keep as many processors busy as programs did that were not recorded.

    Returns
    -------
    EngineOptions
        ``recording_us``, ``think_burst_us``, ``others``, ``others_burst_us``; without what is not known or makes no
        sense.

    Raises
    ------
    FlextraceError
        The file is no trace that this program reads.
    """
    known = _known(Path(trace_path))
    options: EngineOptions = {}
    recording_us = _number(known, "recording_ns", 1e-3, RECORDING_US_MIN, RECORDING_US_MAX)
    if recording_us is not None:
        # Recorded times are those within the kernel. A replay enters and leaves it between them, too.
        call_us = _number(known, "call_ns", 1e-3, RECORDING_US_MIN, RECORDING_US_MAX) or 0.0
        options["recording_us"] = round(recording_us + call_us, 6)
    if not computing:
        return options
    burst_us = _number(known, "thinking_burst_ns", 1e-3, BURST_US_MIN, BURST_US_MAX)
    if burst_us is not None:
        options["think_burst_us"] = burst_us
    processors = _number(known, "others", 1.0, OTHERS_MIN, OTHERS_MAX)
    if others and processors is not None:
        options["others"] = processors
        burst_us = _number(known, "others_burst_ns", 1e-3, BURST_US_MIN, BURST_US_MAX)
        if burst_us is not None:
            options["others_burst_us"] = burst_us
    return options


def _known(path: Path) -> dict[str, Any]:
    head, file_bytes = read_head(path)
    text = json_text(path, np.frombuffer(head, HEADER_DTYPE)[0], head, file_bytes)
    try:
        metadata = json.loads(text or b"{}")
    except (ValueError, RecursionError):
        return {}
    known = metadata.get("processors") if isinstance(metadata, dict) else None
    return known if isinstance(known, dict) else {}


def _number(known: dict[str, Any], name: str, unit: float, least: float, most: float) -> float | None:
    value = known.get(name)
    if not finite(value):
        return None
    value *= unit
    return round(value, 6) if least <= value <= most else None
