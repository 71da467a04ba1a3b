# SPDX-License-Identifier: Apache-2.0
"""Turns the document of a replay into what the user gets: its origin in it, printed, written, and an exit code."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
from contextlib import suppress
from pathlib import Path
from typing import Any

from characterize.errors import FlextraceError
from characterize.trace_files.expansion import is_archive
from characterize.trace_files.new_file import write_text
from characterize.trace_files.provenance import command_words, sha256_of
from characterize.trace_files.trace_head import is_trace
from flextrace.output.talk import say
from replayer.result_text import summary_lines
from replayer.run import EXIT_INTERRUPTED, EXIT_NOT_TRUSTWORTHY, EXIT_OK
from replayer.running.confine import current_limit
from selfscale.comparing.fidelity_text import fidelity_lines
from selfscale.comparing.recorded_replay import INTERRUPTED


def provenance(trace: Path, memory: int | None) -> dict[str, Any]:
    """What a result needs to be understood later: the command, the input's hash, the machine.

    Made before the replay: after it a trace of gigabytes would keep a result waiting that is there, and beside it the
    hashing would take a processor from what is measured. The engine reads the trace right after, from the page cache.
    """
    digest = None
    with suppress(OSError, FlextraceError):  # the engine says what is wrong with it
        if is_trace(trace) or is_archive(trace):  # not of a disk's image that was named by mistake
            digest = sha256_of(trace)
    return {
        "command": command_words(),
        "trace_sha256": digest,
        "environment": {
            "kernel": platform.release(),
            "cpus": len(os.sched_getaffinity(0)),
            "memory_limit_bytes": memory or current_limit(),
        },
    }


def tell(arguments: argparse.Namespace, document: dict[str, Any]) -> int:
    """Print the result, and write it; the exit code."""
    text = json.dumps(document, indent=2)
    try:
        print(text if arguments.format == "json" else _as_text(document), flush=True)
        for warning in document["warnings"]:
            say("replay", f"warning: {warning}")
        for reason in document["reasons"]:
            say("replay", f"not trustworthy: {reason}")
    finally:
        # Also where nobody reads what is printed; and after it, since the disk may be full.
        if arguments.output:
            write_text(arguments.output, text, force=arguments.force)
    if "fidelity" in document and arguments.output:
        quoted = shlex.quote(str(arguments.output))
        say("replay", f"next: flextrace report -o report.html --replay {quoted}")
    if document["stopped"] == "signal":
        say("replay", "interrupted; the result is of what was replayed until then")
        return EXIT_INTERRUPTED
    if document.get("fidelity_missing") == INTERRUPTED:
        return EXIT_INTERRUPTED
    return EXIT_OK if document["trustworthy"] else EXIT_NOT_TRUSTWORTHY


def _as_text(document: dict[str, Any]) -> str:
    """The summary and, of a recorded replay, its comparison with the trace."""
    lines = summary_lines(document)
    if "fidelity" in document:
        lines += ["", *fidelity_lines(document)]
    return "\n".join(lines)
