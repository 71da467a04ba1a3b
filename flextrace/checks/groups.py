# SPDX-License-Identifier: Apache-2.0
"""Turns the control groups of this machine into checks: what --memory can confine, what --in-cgroup can record."""

from __future__ import annotations

from characterize.errors import FlextraceError
from characterize.units import format_bytes
from flextrace.checks.check import Check, ok, warn
from flextrace.checks.host import Host
from replayer.running.confine import ADVICE, MemoryGroup

AREA = "control groups"
LIMIT_BYTES = 64 << 20


def group_checks(host: Host) -> list[Check]:
    """Both ways in which verbs use them."""
    return [memory_check(why_no_memory_group()), record_check(host)]


def why_no_memory_group() -> str:
    """Make a group, and remove it: empty if that works, else what stands against it."""
    try:
        with MemoryGroup(LIMIT_BYTES):
            return ""
    except (FlextraceError, OSError) as error:
        return str(error)


def memory_check(reason: str) -> Check:
    """--memory of record, replay, scale and compare."""
    if not reason:
        return ok(AREA, "--memory", f"a group of {format_bytes(LIMIT_BYTES)} was made and removed")
    if reason.endswith(ADVICE):
        return warn(AREA, "--memory", f"does not work: {reason.removesuffix(ADVICE).rstrip(': ')}", ADVICE)
    text, _, advice = reason.partition("; ")
    return warn(AREA, "--memory", f"does not work: {text}", advice or ADVICE)


def record_check(host: Host) -> Check:
    """--in-cgroup of record takes groups of both versions."""
    places: dict[str, list[str]] = {"cgroup2": [], "cgroup": []}
    for line in (host.text(host.proc / "self/mountinfo") or "").splitlines():
        head, _, tail = line.partition(" - ")
        kind = tail.split()[0] if tail else ""
        if kind in places:
            places[kind].append(head.split()[4])
    told = [f"groups of version 2 below {place}" for place in places["cgroup2"]]
    if places["cgroup"]:
        told.append(f"of version 1 below {' '.join(places['cgroup'])}")
    if told:
        return ok(AREA, "--in-cgroup", "; ".join(told))
    return warn(
        *(AREA, "--in-cgroup", "does not work: no control groups are mounted"),
        "sudo mount -t cgroup2 none /sys/fs/cgroup",
    )
