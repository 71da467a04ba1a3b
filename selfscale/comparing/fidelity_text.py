# SPDX-License-Identifier: Apache-2.0
"""Turns the comparison of a replay with its original into lines below 80 columns, and into rows for any other table."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from characterize.printable import printable
from characterize.units import format_bytes, format_duration, format_megabytes

WIDTH = 79
ABSENT = "-"
TIMES = {"mean_ns": "mean", "p50_ns": "p50", "p90_ns": "p90", "p99_ns": "p99", "p999_ns": "p99.9"}

Format = Callable[[float], str]


def number(value: float) -> str:
    """Four digits, whole numbers whole."""
    return f"{value:.0f}" if value == round(value) and abs(value) < 1e12 else f"{value:.4g}"


def share(value: float) -> str:
    """A share with four digits behind the point."""
    return f"{value:.4f}"


def rate(value: float) -> str:
    """Bytes per second as MB/s."""
    return f"{format_megabytes(value)} MB/s"


def time_ns(value: float) -> str:
    """A time in ns in a readable unit, at most nine characters."""
    return format_duration(value / 1e9) if value < 1e11 else f"{value / 1e9:.0f} s"


@dataclass(frozen=True)
class Line:
    """One number of both runs as text: ``name, original, replay, difference``."""

    name: str
    original: str
    replay: str
    difference: str


# Where a number stands in both sides, and how it is shown; shares differ by a number, everything else by a share.
_NUMBERS: tuple[tuple[str, tuple[str, ...], Format], ...] = (
    ("uniqueBytes", ("parameters", "uniqueBytes"), format_bytes),
    ("seqFrac", ("parameters", "seqFrac"), share),
    ("readFrac", ("parameters", "readFrac"), share),
    ("sizeMean", ("parameters", "sizeMean"), format_bytes),
    ("processNum", ("parameters", "processNum"), number),
    ("read size, p50", ("sizes", "read", "p50_bytes"), format_bytes),
    ("read size, p99", ("sizes", "read", "p99_bytes"), format_bytes),
    ("write size, p50", ("sizes", "write", "p50_bytes"), format_bytes),
    ("write size, p99", ("sizes", "write", "p99_bytes"), format_bytes),
    ("reads", ("requests", "reads"), number),
    ("writes", ("requests", "writes"), number),
    ("syncs", ("requests", "syncs"), number),
    ("threads", ("threads",), number),
    ("elapsed time", ("elapsed_s",), format_duration),
    ("requests per second", ("requests_per_s",), number),
    ("throughput", ("bytes_per_s",), rate),
    ("in flight, mean", ("in_flight", "mean"), number),
    *((f"waiting for processor, {kind}", ("run_delay", kind, "share"), share) for kind in ("read", "write", "sync")),
    ("think time, mean", ("think_time", "mean_ns"), time_ns),
    ("think time, p50", ("think_time", "p50_ns"), time_ns),
    ("think time, p99", ("think_time", "p99_ns"), time_ns),
    ("computing in it", ("computing", "share"), share),
    ("waiting in it", ("waits", "share"), share),
    ("calls that waited", ("waits", "count"), number),
    ("page-cache hits", ("page_cache", "hitFrac"), share),
    ("cold reads", ("page_cache", "coldFrac"), share),
)


def _value(side: Mapping[str, Any], place: tuple[str, ...]) -> float | None:
    found: Any = side
    for name in place:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _line(name: str, original: float | None, replay: float | None, form: Format) -> Line:
    first, second = (ABSENT if value is None else form(value) for value in (original, replay))
    known = original is not None and replay is not None
    return Line(name, first, second, _difference(original, replay, form) if known else "")  # type: ignore[arg-type]


def _difference(original: float, replay: float, form: Format) -> str:
    if form is share:
        return f"{replay - original:+.4f}"
    if not original:
        return "" if replay else "+0.0%"
    change = (replay - original) / original
    return f"{change:+.1%}" if abs(change) < 10 else f"x {replay / original:.3g}"


def number_lines(fidelity: Mapping[str, Any]) -> list[Line]:
    """Every number that both runs have, with its difference.

    Parameters
    ----------
    fidelity : mapping
        Document ``flextrace.fidelity/1``.
    """
    original, replay = fidelity["original"], fidelity["replay"]
    lines = [_line(name, _value(original, place), _value(replay, place), form) for name, place, form in _NUMBERS]
    lines = [line for line in lines if (line.original, line.replay) != (ABSENT, ABSENT)]
    return lines + _block_lines(original["block"], replay["block"])


def _block_lines(original: Mapping[str, Any] | None, replay: Mapping[str, Any] | None) -> list[Line]:
    """Block traffic, whole and by the class of its cause, as far as there is any; None where it was not recorded."""
    classes = {name: None for side in (original, replay) if side for name in side["classes"]}
    lines = []
    for part in (None, *classes):
        title = f"  {part}" if part else "block"
        for way, done in (("read", "read"), ("write", "written")):
            for what, name, form in (("requests", f"{way}s", number), ("bytes", f"bytes {done}", format_bytes)):
                counts = [_count(side, part, f"{way}_{what}") for side in (original, replay)]
                if any(counts):
                    lines.append(_line(f"{title} {name}", counts[0], counts[1], form))
    return lines


def _count(block: Mapping[str, Any] | None, part: str | None, name: str) -> int | None:
    """A count of block traffic; what did not happen on a side that was recorded is 0."""
    if block is None:
        return None
    return int((block["classes"].get(part, {}) if part else block).get(name, 0))


def time_rows(fidelity: Mapping[str, Any]) -> list[list[str]]:
    """Response times by kind: ``kind, run, count``, then `TIMES`; both runs of every kind that occurred."""
    rows = []
    for kind in ("read", "write", "sync"):
        both = [(run, (fidelity[run]["response_time"] or {}).get(kind)) for run in ("original", "replay")]
        for run, times in both:
            if times and any(other and other["count"] for _, other in both):
                cells = [ABSENT if times[name] is None else time_ns(times[name]) for name in TIMES]
                rows.append([kind, run, str(times["count"]), *cells])
    return rows


def distance_rows(fidelity: Mapping[str, Any]) -> list[list[str]]:
    """Distances of the distributions: ``what``, Kolmogorov-Smirnov, earth mover's as a share of the original's mean."""
    rows = []
    for name, distance in fidelity["distance"].items():
        if distance is not None:
            moved = distance["emd_share"]
            rows.append([name.replace("_", " "), share(distance["ks"]), ABSENT if moved is None else f"{moved:.1%}"])
    return rows


def order_rows(fidelity: Mapping[str, Any]) -> list[list[str]]:
    """Every rule of the order: ``name, meaning, checked, violations``."""
    rules = fidelity["order"]["rules"]
    return [
        [name.replace("_", " "), rule["meaning"], str(rule["checked"]), str(rule["violations"])]
        for name, rule in rules.items()
    ]


def example_lines(fidelity: Mapping[str, Any]) -> list[str]:
    """The first violations of every rule that was to be kept, a sentence each."""
    lines = []
    for name in fidelity["order"]["promised"]:
        for example in fidelity["order"]["rules"].get(name, {"examples": []})["examples"]:
            early = time_ns(example["early_ns"])
            lines.append(
                f"{name.replace('_', ' ')}: {_told(example['operation'])} began {early} before the end of "
                f"{_told(example['waits_for'])}"
            )
    return lines


def _told(operation: Mapping[str, Any]) -> str:
    place = f" {operation['bytes']} at {operation['offset']}" if operation["op"] in ("read", "write") else ""
    return f"{operation['op']}{place} of {printable(operation['file'])} by thread {operation['thread']}"


def account_lines(fidelity: Mapping[str, Any]) -> list[str]:
    """What was compared, what differed, what was lost: a sentence each."""
    order, results = fidelity["order"], fidelity["results"]
    expected = order["expected"] - order.get("closes_of_nothing", 0)
    found = order["compared"] + order.get("ambiguous", 0)
    share = f" ({found / expected:.2%})" if expected else ""
    lost = {
        run: ", ".join(f"{count} {kind}" for kind, count in kinds.items()) or "none"
        for run, kinds in fidelity["lost"].items()
    }
    lines = [
        f"order: {order['violations']} violations; {found} of {expected} operations that a replay "
        f"repeats{share} were found in its recording, {order['operations'] - expected} are not repeated",
        f"results: {results['differed']} of {results['compared']} operations came to another result than recorded",
        f"records lost: {lost['original']} of the original, {lost['replay']} of the replay",
    ]
    if order["shuffled_threads"]:
        lines.append(f"{order['shuffled_threads']} threads did not do the operations of the trace in its order")
    lines += _block_request_lines(fidelity)
    if late := fidelity["lateness"]:
        times = ", ".join(f"{name} {time_ns(late[key])}" for key, name in (TIMES | {"max_ns": "max"}).items())
        lines.append(f"late: {times}")
    return lines


def _block_request_lines(fidelity: Mapping[str, Any]) -> list[str]:
    """What a comparison of block requests has none of, and how many requests of one side the other one has none for."""
    if fidelity.get("layer") != "block":
        return []
    beyond: dict[str, list[str]] = {"original": [], "replay": []}
    for kind, counts in fidelity["requests_by_kind"].items():
        more = counts["replay"] - counts["original"]
        if more:
            beyond["replay" if more > 0 else "original"].append(f"{abs(more)} {kind.replace('_', ' ')}")
    told = "; ".join(f"{', '.join(counts)} only of the {run}" for run, counts in beyond.items() if counts)
    return [
        f"compared: block requests of {fidelity['source']}, and on {fidelity['device']}",
        f"not applicable to block requests: {', '.join(fidelity['not_applicable'].values())}",
        f"block requests that are unaccounted for: {told or 'none'}",
    ]


def fidelity_lines(document: Mapping[str, Any]) -> list[str]:
    """The comparison as lines of at most 79 columns.

    Parameters
    ----------
    document : mapping
        Schema ``flextrace.replay/1`` with ``fidelity``.
    """
    fidelity = document["fidelity"]
    lines = [f"{'fidelity':<24}{'original':>16}{'replay':>16}{'difference':>16}"]
    lines += [
        f"  {line.name:<22}{line.original:>16}{line.replay:>16}{line.difference:>16}".rstrip()
        for line in number_lines(fidelity)
    ]
    rows = time_rows(fidelity)
    if rows:
        lines.append(f"  {'response time':<17}{'count':>9}" + "".join(f"{name:>10}" for name in TIMES.values()))
        kinds = [row[0] for row in rows]
        for above, (kind, run, *cells) in zip(["", *kinds], rows, strict=False):
            name = "" if kind == above else kind
            lines.append(f"    {name:<6}{run:<9}{cells[0]:>9}" + "".join(f"{cell:>10}" for cell in cells[1:]))
    if distances := distance_rows(fidelity):
        lines.append(f"  {'distance of distributions':<30}{'KS':>10}{'EMD / mean':>14}")
        lines += [f"    {name:<28}{ks:>10}{moved:>14}" for name, ks, moved in distances]
    lines.append(f"  {'order':<26}{'checked':>14}{'violations':>14}")
    lines += [f"    {name:<24}{checked:>14}{violations:>14}" for name, _, checked, violations in order_rows(fidelity)]
    for text in [*account_lines(fidelity), *example_lines(fidelity), *(f"note: {note}" for note in fidelity["notes"])]:
        lines += textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="    ")
    return lines
