# SPDX-License-Identifier: Apache-2.0
"""Turns the document of a replay into a summary for a terminal."""

from __future__ import annotations

from typing import Any

from characterize.units import format_bytes, format_duration


def _times_line(name: str, times: dict[str, Any]) -> str:
    columns = (format_duration(times[f"{key}_ns"] / 1e9) for key in ("mean", "p50", "p99", "p999", "max"))
    return f"  {name:<6}{times['count']:>10} " + "".join(f"{column:>12}" for column in columns)


def _cache_line(document: dict[str, Any]) -> str:
    image = document["image"]
    if document["cache"] == "keep":
        return f"page cache    {format_bytes(image['cache_resident_bytes'])} of {format_bytes(image['bytes'])} of files"
    return (
        f"page cache    {format_bytes(image['cache_achieved_bytes'])} of {format_bytes(image['cache_wanted_bytes'])} "
        f"in {image['cache_wanted_ranges']} ranges that {document['cache']} means, of {format_bytes(image['bytes'])}"
    )


def _device_line(notes: dict[str, Any]) -> str:
    lanes = f" in {notes['lanes']} lanes" if "lanes" in notes else ""
    left_out = f"; left out: {_counts(notes['left_out'])}" if notes["left_out"] else ""
    return (
        f"device        layer {notes['layer']} of {notes['source']}{lanes}, fit {notes['fit']}: "
        f"{notes['moved']} moved, {notes['aligned']} aligned{left_out}"
    )


def failures(document: dict[str, Any], kind: str) -> str:
    """How many operations of a kind (io, fileop) failed or were short, and the errors of all; empty if none."""
    outcomes = document["operations"][kind]
    failed = outcomes["failed"] + outcomes["short"]
    return f"{failed} failed or were short ({_counts(document['errors']) or 'short'})" if failed else ""


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def _engine_line(engine: dict[str, Any]) -> str:
    """Which engine it was and why, and what was not as recorded."""
    line = f"engine        {engine['name']} ({engine['why']})"
    if engine["name"] == "io_uring":
        line += f", {engine['in_flight_max_per_thread']} in flight per thread at most"
    for option in ("direct", "sync"):
        if engine[option] != "recorded":
            line += f", {option} {engine[option]}"
    if "sync_changed_writes" in engine:
        line += f" ({engine['sync_changed_writes']} writes changed)"
    return line


def _thinking_lines(document: dict[str, Any]) -> list[str]:
    """What think times are without, and what happens meanwhile."""
    lines = []
    if "recording_ns" in document:
        taken = format_duration(document["recording_ns"] / 1e9)
        lines.append(f"think times   without {taken} each, of recording and of entering the kernel")
    if "others_processors" in document:
        lines.append(
            f"others        {document['others_processors']:.2f} processors are kept busy, as by programs that were not "
            "recorded (--computing)"
        )
    return lines


def _accuracy_lines(accuracy: dict[str, Any]) -> list[str]:
    """How late operations began, and the verdict; nothing where there were no due times."""
    if accuracy["verdict"] == "untimed":
        return []
    limit, margin = (format_duration(accuracy[f"{name}_ns"] / 1e9) for name in ("limit", "spin_margin"))
    lines = [_times_line("late", accuracy["lateness"])]
    if "behind" in accuracy:
        lines.append(_times_line("behind", accuracy["behind"]))
    lines.append(
        f"accuracy      {accuracy['verdict'].replace('_', ' ')}: {accuracy['late_share']:.2%} late by more than "
        f"{limit}; spins {margin} before due times"
    )
    if "behind" in accuracy:
        span, drift, slip = (format_duration(accuracy[f"{name}_ns"] / 1e9) for name in ("schedule", "drift", "slip"))
        lines.append(
            f"  {accuracy['behind_share']:.2%} behind the schedule of {span}, drift {drift} at its end, slip {slip} "
            f"({accuracy['late_policy']})"
        )
    return lines


def summary_lines(document: dict[str, Any]) -> list[str]:
    """The result as lines of less than 80 columns."""
    operations, requests = document["operations"], document["requests"]
    device = document.get("device", {}).get("path")
    directory = document.get("directory")
    places = [f"in {directory}"] * bool(directory) + [f"on {device}"] * bool(device)
    lines = [
        f"{document['trace']} {' and '.join(places) or 'nowhere: no request was issued'}",
        f"  timing {document['timing']}, order {document['order']}, cache {document['cache']}, "
        f"{document['threads']} threads, ended by {document['stopped']} after {document['passes']:.4g} passes",
        _engine_line(document["engine"]),
        *_thinking_lines(document),
        f"operations    {operations['records']} = {operations['done']} done + {operations['short']} short "
        f"+ {operations['failed']} failed + {operations['skipped']} skipped",
    ]
    for name in ("mismatches", "errors", "skipped_reasons"):
        if document[name]:
            lines.append(f"  {name.replace('_', ' ')}: {_counts(document[name])}")
    lines += [
        f"requests      {requests['read']} reads of {format_bytes(document['bytes']['read'])}, "
        f"{requests['write']} writes of {format_bytes(document['bytes']['write'])}",
        _device_line(document["device_trace"]) if "device_trace" in document else _cache_line(document),
        f"elapsed       {format_duration(document['elapsed_s'])}, in I/O {format_duration(document['time_in_io_s'])}, "
        f"in sync {format_duration(document['time_in_sync_s'])}",
        f"throughput    {document['throughput_bytes_per_s'] / 1e6:.4g} MB/s of elapsed time, "
        f"{document['throughput_in_io_bytes_per_s'] / 1e6:.4g} MB/s of time in I/O",
        f"  {'':<6}{'count':>10} " + "".join(f"{name:>12}" for name in ("mean", "p50", "p99", "p99.9", "max")),
    ]
    lines += [_times_line(name, times) for name, times in document["response_time"].items() if times["count"]]
    from_due = document.get("response_time_from_due", {})
    lines += [_times_line(f"{name}*", times) for name, times in from_due.items() if times["count"]]
    if any(times["count"] for times in from_due.values()):
        lines.append("  * from the recorded time, with the time that an operation had to wait for its start")
    return lines + _accuracy_lines(document["accuracy"])
