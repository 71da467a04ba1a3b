# SPDX-License-Identifier: Apache-2.0
"""Turns a characterization into text of at most 90 columns: warnings, then layer by layer the five and the rest."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import Any

from characterize.characterization import Characterization
from characterize.definitions import DEFINITIONS
from characterize.layer_characterization import LayerCharacterization
from characterize.links import Links
from characterize.printable import printable
from characterize.requests import LAYERS
from characterize.units import format_bytes, format_duration, format_megabytes

WIDTH = 90
MISS_RATIO_ROWS = 10
_TITLE = {"vfs": "APPLICATION (VFS) LAYER", "block": "BLOCK LAYER"}
_ABSENT = "-"

_FIVE_MEAN = {
    "uniqueBytes": "bytes in the union of all requests",
    "seqFrac": "start = end of the thread's last request on the file",
    "readFrac": "reads / requests",
    "sizeMean": "bytes / requests",
    "processNum": "most requests in flight at once",
}
_FIVE_MEAN_BLOCK = {**_FIVE_MEAN, "seqFrac": "start = end of the previous request on the device"}
_PAST = {"read": "read", "write": "wrote"}
_DECLARED = "declared by its maker, not counted"
_SEQUENTIAL_MEAN = {
    "strictOneStream": "start = end of the trace's previous request",
    "strictPerDirection": "the same, reads and writes apart",
    "queue32": "start = end of one of 32 streams",
    "near32": "within 128 KiB of an end of the last 32 requests",
    "darshanSeq": "at or behind the stream's previous end",
}
_EXTENDED_MEAN = {
    "coldFrac": "read bytes not in the page cache when first touched",
    "missFrac": "read bytes not in the page cache when read",
    "cacheHitFrac": "bytes of cached reads found in the page cache",
    "appendFrac": "written bytes behind the end of their file",
    "syncFrac": "syncs / writes",
    "bytesPerSync": "written bytes / syncs",
    "syncWriteFrac": "writes under O_SYNC or O_DSYNC",
    "directFrac": "requests under O_DIRECT",
    "attributedFrac": "block bytes whose cause is known",
    "readaheadFrac": "requests that are read-ahead",
    "metadataFrac": "requests marked as metadata",
    "fuaFrac": "requests forced to stable media",
}


def render(characterization: Characterization, layers: Sequence[str] = LAYERS) -> str:
    """The text, lines of at most 90 columns, without a final newline.

    Parameters
    ----------
    characterization : Characterization
    layers : sequence of {"vfs", "block"}
        Which layers to show; one without any request is one line.
    """
    lines: list[str] = []
    for warning in characterization.warnings:
        lines += textwrap.wrap(f"WARNING: {printable(warning)}", WIDTH, subsequent_indent="         ")
    if not characterization.trustworthy:
        lines += ["WARNING: the numbers below are NOT TRUSTWORTHY"]
    if lines:
        lines.append("")
    source = characterization.provenance.get("input")
    if source:
        lines += textwrap.wrap(f"trace    {printable(source['path'])}", WIDTH, subsequent_indent="         ")
    elapsed = _duration(characterization.elapsed_s)
    origin = characterization.trace["elapsed_from"]
    lines.append(f"elapsed  {elapsed}" + (f"  (from the {origin})" if origin else "  (not measured)"))
    for name in layers:
        lines += ["", *_layer(name, characterization.layers[name])]
        if name == "vfs":
            lines += _mapped(characterization)
        elif characterization.layers[name].requests:
            lines += ["", *links_lines(characterization.links)]
    return "\n".join(lines)


def _mapped(characterization: Characterization) -> list[str]:
    """The rule for mapped files, and what it counted and left out; nothing where no mapped file was touched."""
    counts, rule = characterization.layers["vfs"].counts, f"mmap ({characterization.mmap})"
    if not counts["mapped"] + counts["left_out"]:
        return []
    lines = [
        "",
        f"  accesses to mapped files, rule --mmap {characterization.mmap}",
        _row("counted", str(counts["mapped"]), f"{format_bytes(counts['mapped_bytes'])} in whole pages", 4),
        _row("left out", str(counts["left_out"]), f"{format_bytes(counts['left_out_bytes'])} in whole pages", 4),
    ]
    return lines + textwrap.wrap(
        DEFINITIONS[rule], WIDTH, initial_indent="    " + rule + ": ", subsequent_indent="    "
    )


def links_lines(links: Links) -> list[str]:
    """Why block bytes moved, as text."""
    lines = ["  links: why block bytes moved"]
    if not len(links.by_class):
        lines.append("    not recorded (format 1.0, or a foreign trace)")
    for row in links.by_class.to_dict("records"):
        moved = f"{format_bytes(row['read_bytes'])} read, {format_bytes(row['written_bytes'])} written"
        lines.append(_row(row["class"].lower(), _share(row["share"]), moved, 4))
    for share, name, text in (
        (links.issued, "direct, fill", "linked to their operation"),
        (links.written_back, "write-back", "linked to the process that dirtied them"),
        (links.written_back_to_operation, "write-back", "linked to the operation that dirtied them"),
    ):
        if share.bytes:
            lines.append(_row(name, _share(share.share), f"of {format_bytes(share.bytes)} {text}", 4))
    for row in links.others.to_dict("records"):
        name = row["op"].lower().replace("_", " ")
        lines.append(_row(name, str(row["requests"]), "requests, not in the shares", 4))
    if links.stacked_requests:
        text = f"requests of stacked devices, {format_bytes(links.stacked_bytes)}, not in any total"
        lines.append(_row("stacked", str(links.stacked_requests), text, 4))
    ratios = {"read": links.read_amplification, "write": links.write_amplification}
    for name, ratio in ratios.items():
        lines.append(_row(f"{name} amplif.", _number(ratio), f"block bytes / bytes that programs {_PAST[name]}", 4))
    return lines


def _layer(name: str, layer: LayerCharacterization) -> list[str]:
    if not layer.requests:
        return [f"{_TITLE[name]}: no requests"]
    counts = layer.counts
    lines = [
        f"{_TITLE[name]}: {counts['reads']} reads, {counts['writes']} writes, {counts['syncs']} syncs"
        + (f", {counts['failed']} failed" if counts["failed"] else "")
    ]
    five = layer.parameters
    mean = dict(_FIVE_MEAN if name == "vfs" else _FIVE_MEAN_BLOCK)
    if layer.declared:
        mean["processNum"] = _DECLARED
    for parameter in mean:
        if parameter == "seqFrac" and layer.lower_bounds:
            mean[parameter] = "TOO LOW as a rule: records were lost"
        elif parameter in layer.lower_bounds:
            mean[parameter] = "LOWER BOUND: records were lost"
        elif parameter in layer.from_totals:
            mean[parameter] = "exact: from totals, not from the records"
        elif parameter == "processNum" and parameter in layer.estimated_from_totals:
            mean[parameter] = "ESTIMATE: from totals of all operations, failed and mapped ones too"
        elif parameter in layer.estimated_from_totals:
            mean[parameter] = "ESTIMATE: from totals; mapped files by their records' share"
        elif layer.lower_bounds:
            mean[parameter] = "ESTIMATE: of the records that were not lost"
    shown = {
        "uniqueBytes": _size(five.unique_bytes),
        "seqFrac": _share(five.seq_frac),
        "readFrac": _share(five.read_frac),
        "sizeMean": _size(five.size_mean),
        "processNum": _number(five.process_num),
    }
    for parameter, text in shown.items():
        lines.append(_row(parameter, (">= " if mean[parameter].startswith("LOWER") else "") + text, mean[parameter]))
    lines.append("")
    lines += [*_locality(layer), "", *_load(layer), "", *_response(layer), ""]
    lines += [*_reuse(layer), ""]
    lines.append("  sequential by other definitions")
    lines += [_row(key, _share(layer.sequentiality[key]), text, 4) for key, text in _SEQUENTIAL_MEAN.items()]
    runs = layer.sequential_runs
    length = f"p50 {runs['requests']['p50']}, p90 {runs['requests']['p90']}, max {runs['requests']['max']} requests"
    lines.append(_row("runs", str(runs["count"]), f"{_size(runs['bytes']['mean'])} on average; {length}", 4))
    lines += ["", "  extended parameters"]
    for key, text in _EXTENDED_MEAN.items():
        if key in layer.extended:
            value = layer.extended[key]
            lines.append(_row(key, _size(value) if key == "bytesPerSync" else _share(value), text, 4))
    return [*lines, "", *_sizes(layer)]


def _locality(layer: LayerCharacterization) -> list[str]:
    locality = layer.locality
    quantiles = [f"p{100 * q:g} {_size(locality.quantile_bytes(q))}" for q in (0.5, 0.9, 0.99)]
    sampled = locality.sampled
    how = "" if sampled is None else f"; estimated from {sampled['blocks']} of them, {sampled['rate']:.2%}"
    lines = [
        f"  locality (LRU stack of 4 KiB blocks{how})",
        _row("mean depth", _size(locality.mean_depth_bytes), ", ".join(quantiles), 4),
        _row("equivalent", _size(locality.equivalent_unique_bytes), "uniqueBytes for this depth: 2 x mean depth", 4),
        _row("first touches", _share(locality.cold_share), f"of {locality.references:.0f} block references", 4),
        "    cache size     miss ratio",
    ]
    curve = locality.miss_ratio_curve(1)
    step = max(1, math.ceil(len(curve) / MISS_RATIO_ROWS))
    # From the largest size down, so that the last row, the size that holds everything, is always shown.
    for size, ratio in curve.iloc[::-step].iloc[::-1].itertuples(index=False):
        lines.append(f"    {format_bytes(size):>10}     {ratio:7.4f}  {'#' * round(40 * ratio)}")
    return lines


def _reuse(layer: LayerCharacterization) -> list[str]:
    """What was done to a block before, and how uneven files are used."""
    reuse, skew = layer.reuse, layer.file_skew
    lines = ["  what was done to a block before, of all block references"]
    for name, text in (("readAfterWrite", "read, after a write"), ("writeAfterWrite", "written, after a write")):
        times = reuse["time"][name]
        after = f" {_ns(times['p50_ns'])} before (median)" if times and times["count"] else ""
        lines.append(_row(name, _share(reuse[name]), text + after, 4))
    between = layer.inter_arrival_time
    if between and between["count"]:
        spread = f"p50 {_ns(between['p50_ns'])}, p99 {_ns(between['p99_ns'])}, max {_ns(between['max_ns'])}"
        lines.append(_row("inter-arrival", _ns(between["mean_ns"]), spread, 4))
    uneven = f"share of the bytes of the busiest of {skew['files']}; Gini {_number(skew['gini'])}"
    return [*lines, _row("file skew", _share(skew["topShare"]), uneven, 4)]


def _load(layer: LayerCharacterization) -> list[str]:
    load, time = layer.concurrency, layer.time
    ratio = layer.littles_law["ratio"]
    think = layer.think_time or {}
    share = (
        "time in I/O / elapsed time"
        if math.isnan(time["time_in_io_share"])
        else (f"{_share(time['time_in_io_share'])} of elapsed time")
    )
    lines = [
        "  load",
        _row("throughput", _rate(time["throughput_bytes_per_s"]), "bytes / elapsed time", 4),
        _row("in I/O", _rate(time["throughput_in_io_bytes_per_s"]), "bytes / time in I/O", 4),
        _row("time in I/O", _duration(time["time_in_io_s"]), share, 4),
        _row("time in sync", _duration(time["time_in_sync_s"]), "with a sync in flight", 4),
        *_between_syncs(layer),
        _row("in flight", _number(load.in_flight_mean), "mean number while any is", 4),
        _row("threads", _number(load.threads), f"queue depth of each {_number(load.queue_depth_per_thread)}", 4),
    ]
    if layer.think_time is not None:
        spread = f"p50 {_ns(think['p50_ns'])}, p90 {_ns(think['p90_ns'])}, p99 {_ns(think['p99_ns'])}"
        lines.append(_row("think time", _ns(think["mean_ns"]), spread, 4))
        lines += [*_computing(layer), *_waits(layer)]
        lines.append(_row("Little's law", _number(ratio), "throughput by the law / measured", 4))
    return lines


def _computing(layer: LayerCharacterization) -> list[str]:
    computing = layer.computing
    if not computing or math.isnan(computing["share"]):
        return []
    known = f"of think time with a processor; known of {_share(computing['measured_share'])}"
    return [_row("computing", _share(computing["share"]), known, 4)]


def _waits(layer: LayerCharacterization) -> list[str]:
    waits = layer.waits
    if not waits:
        return []
    slept = f"calls after other threads'; slept {_duration(waits['slept_s'])}, {_share(waits['share'])} of think time"
    return [_row("waits", f"{waits['count']}", slept, 4)]


def _between_syncs(layer: LayerCharacterization) -> list[str]:
    times = layer.inter_sync_time
    if not times or not times["count"]:
        return []
    spread = f"from one to the next; p50 {_ns(times['p50_ns'])}, p99 {_ns(times['p99_ns'])}, max {_ns(times['max_ns'])}"
    return [_row("between syncs", _ns(times["mean_ns"]), spread, 4)]


def _response(layer: LayerCharacterization) -> list[str]:
    lines = ["  response time      count       mean        p50        p90        p99        max"]
    for name in ("read", "write", "sync"):
        times = layer.response_time[name]
        if times is None:
            return ["  response time: not measured"]
        cells = [_ns(times[key]) for key in ("mean_ns", "p50_ns", "p90_ns", "p99_ns", "max_ns")]
        lines.append(f"    {name:<10}{times['count']:>10}" + "".join(f"{cell:>11}" for cell in cells))
    delays = [f"{name} {_share(known['share'])}" for name, known in layer.run_delay.items() if known]
    if delays:
        lines.append(f"    of these times waiting for a processor: {', '.join(delays)}")
    return lines


def _sizes(layer: LayerCharacterization) -> list[str]:
    sizes = [
        f"{format_bytes(row['bytes'])} {_share(row['share'])}" for row in layer.common_sizes.head(5).to_dict("records")
    ]
    lines = textwrap.wrap("  commonest sizes: " + ", ".join(sizes), WIDTH, subsequent_indent="    ")
    lines.append("  request size                 reads     writes")
    for row in layer.size_histogram.to_dict("records"):
        low, high = format_bytes(row["low_bytes"]), format_bytes(row["high_bytes"])
        lines.append(f"    {low:>8} ... {high:>8} {row['reads']:>10} {row['writes']:>10}")
    return lines


def _row(name: str, value: str, meaning: str, indent: int = 2) -> str:
    return f"{' ' * indent}{name:<{22 - indent}}{value:>14}  {meaning}".rstrip()


def _size(value: float) -> str:
    return _ABSENT if math.isnan(value) else format_bytes(value)


def _share(value: float) -> str:
    return _ABSENT if math.isnan(value) else f"{value:.4f}"


def _number(value: float) -> str:
    return _ABSENT if math.isnan(value) else f"{value:.4g}"


def _rate(bytes_per_s: float) -> str:
    return _ABSENT if math.isnan(bytes_per_s) else f"{format_megabytes(bytes_per_s)} MB/s"


def _duration(seconds: float) -> str:
    return _ABSENT if math.isnan(seconds) else format_duration(seconds)


def _ns(value: Any) -> str:
    return _ABSENT if value is None else format_duration(value / 1e9)
