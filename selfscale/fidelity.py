# SPDX-License-Identifier: Apache-2.0
"""Turns a trace and the recording of its replay into one document: the same numbers of both, and their distances.

Only the run is compared (`replayer.replay_recording`): of the original what a replay repeats, of the replay what its
threads did, both from the start of their first operation to the end of their last one.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from characterize.concurrency import concurrency_of, in_flight_shares
from characterize.document import plain
from characterize.errors import FlextraceError
from characterize.layout import BlockDataClass, IoFlag, RecordKind
from characterize.links import pieces_of
from characterize.loss import is_lossy
from characterize.requests import LAYERS, requests_of, times_measured
from characterize.response_time import distribution, response_times, syncs_of, think_times
from characterize.trace import Trace
from characterize.workload import workload_of_records
from replayer.order_check import OrderCheck, check_order
from replayer.replay_recording import replay_part, run_part, span_ns

SCHEMA = "flextrace.fidelity/1"

KINDS = ("read", "write", "sync", "think")
"""Times whose distributions are compared."""

PERCENTS = (0.1, 0.5, 1, 2, 5, 10, 20, 25, 30, 40, 50, 60, 70, 75, 80, 90, 95, 98, 99, 99.5, 99.9, 99.99, 100)


def fidelity_of(trace: Trace, recording: Trace, replay: Mapping[str, Any]) -> dict[str, Any]:
    """How a replay compares with what it repeated.

    Parameters
    ----------
    trace : Trace
        The original: recorded, altered, synthetic or imported.
    recording : Trace
        Of the replay, made as `replayer.recorder.recorder_command` says.
    replay : mapping
        Document ``flextrace.replay/1`` of the same replay.

    Returns
    -------
    dict
        The document ``flextrace.fidelity/1``. ``trustworthy`` is false where the recording lost records or the replay
        broke an order that it promises; ``reasons`` says so.
    """
    original, run = run_part(trace), replay_part(recording)
    order = check_order(trace, run, replay["order"])
    executed = replay["operations"]["records"] - replay["operations"]["skipped"]
    differed = sum(replay["mismatches"].values())
    return plain(
        {
            "schema": SCHEMA,
            **comparison_of(original, run),
            "results": {"compared": executed, "differed": differed, "share": differed / executed if executed else None},
            "lateness": replay["accuracy"].get("lateness"),
            "order": order.as_document(),
            "lost": {
                name: {kind.name: count for kind, count in one.header.lost.items()}
                for name, one in (("original", trace), ("replay", recording))
            },
            **_verdict(recording, order, replay),
        }
    )


def comparison_of(original: Trace, replay: Trace) -> dict[str, Any]:
    """The numbers of two runs, as from `run_part` and `replay_part`, and the distances of their distributions.

    Returns
    -------
    dict
        ``original`` and ``replay``, each as from `side_of`; ``distance`` by kind of time (``read, write, sync, think``)
        and ``in_flight``, each as from `distance_of` or None; ``curves``: for the same kinds ``percent``,
        ``original_ns``, ``replay_ns``.
    """
    times = [times_of(trace) for trace in (original, replay)]
    sides = [side_of(trace) for trace in (original, replay)]
    distance: dict[str, Any] = {kind: distance_of(*(one[kind] for one in times)) for kind in KINDS}
    distance["in_flight"] = _in_flight_distance(*(side["in_flight"]["shares"] for side in sides))
    return {
        **dict(zip(("original", "replay"), sides, strict=True)),
        "distance": distance,
        "curves": {kind: _curve(*(one[kind] for one in times)) for kind in KINDS},
    }


def times_of(trace: Trace) -> dict[str, np.ndarray]:
    """Response times of reads, writes and syncs, and think times, ns; empty where times are not measurements."""
    if not times_measured(trace):
        return {kind: np.zeros(0, np.int64) for kind in KINDS}
    requests, syncs = requests_of(trace, mmap="all"), syncs_of(trace)
    duration, read = (requests["end_ns"] - requests["start_ns"]).to_numpy(), requests["read"].to_numpy()
    return {
        "read": duration[read],
        "write": duration[~read],
        "sync": (syncs["end_ns"] - syncs["start_ns"]).to_numpy(),
        "think": think_times(requests)["think_ns"].to_numpy(),
    }


def distance_of(original: np.ndarray, replay: np.ndarray) -> dict[str, float] | None:
    """How far two distributions are apart.

    Returns
    -------
    dict or None
        ``ks``: largest difference of the two distribution functions (Kolmogorov and Smirnov), 0 to 1. ``emd_share``:
        mean distance by which values have to be moved to make one of the other (Wasserstein, earth mover's), as a share
        of the original's mean; NaN where that is 0. None where either has no values.
    """
    if not (len(original) and len(replay)):
        return None
    from scipy import stats  # noqa: PLC0415 (slow to import)

    # Not by scipy's test, which has a probability as well, of no meaning for times that depend on each other.
    first, second = np.sort(original), np.sort(replay)
    values = np.concatenate([first, second])
    reached = [np.searchsorted(ordered, values, side="right") / len(ordered) for ordered in (first, second)]
    moved, mean = float(stats.wasserstein_distance(first, second)), float(first.mean())
    share = moved / mean if mean else math.nan if moved else 0.0
    return {"ks": float(np.abs(reached[0] - reached[1]).max()), "emd_share": share}


def _in_flight_distance(original: pd.DataFrame, replay: pd.DataFrame) -> dict[str, float] | None:
    """The same of the numbers in flight, weighted by time."""
    if not (len(original) and len(replay)):
        return None
    from scipy import stats  # noqa: PLC0415

    depths = np.union1d(original["in_flight"], replay["in_flight"])
    first, second = (
        frame.set_index("in_flight")["share"].reindex(depths, fill_value=0).to_numpy() for frame in (original, replay)
    )
    moved = float(stats.wasserstein_distance(depths, depths, first, second))
    return {
        "ks": float(np.abs(np.cumsum(first) - np.cumsum(second)).max()),
        "emd_share": moved / float(depths @ first),
    }


def _curve(original: np.ndarray, replay: np.ndarray) -> dict[str, Any] | None:
    """Both distributions at the same percentages."""
    if not (len(original) or len(replay)):
        return None
    quantiles = [
        np.quantile(values, np.array(PERCENTS) / 100, method="inverted_cdf") if len(values) else None
        for values in (original, replay)
    ]
    return {"percent": PERCENTS, "original_ns": quantiles[0], "replay_ns": quantiles[1]}


def side_of(trace: Trace) -> dict[str, Any]:
    """The numbers of one run; None or NaN where one was not measured.

    Returns
    -------
    dict
        ``parameters`` (the five, of the records that are there), ``requests``, ``operations``, ``threads``,
        ``elapsed_s`` (from the first operation to the last), ``requests_per_s``, ``bytes_per_s``, ``in_flight`` (mean,
        max, shares of the time in I/O), ``response_time``, ``think_time``, ``page_cache``, ``block``.
    """
    from characterize.extended import cold_frac, miss_frac  # noqa: PLC0415 (numba)

    requests, syncs = requests_of(trace, mmap="all"), syncs_of(trace)
    measured, read, size = times_measured(trace), requests["read"].to_numpy(), requests["bytes"].to_numpy()
    first, last = span_ns(trace.arrays)
    elapsed_s = (last - first) / 1e9 if trace.measured and last > first else math.nan
    load = concurrency_of(requests, measured)
    cached = miss_frac(trace, requests[(requests["flags"].to_numpy() & IoFlag.DIRECT) == 0])
    return {
        "parameters": workload_of_records(trace, mmap="all").as_document(),
        "requests": {
            "reads": int(read.sum()),
            "writes": int((~read).sum()),
            "read_bytes": int(size[read].sum()),
            "written_bytes": int(size[~read].sum()),
            "syncs": len(syncs),
        },
        "operations": len(trace.arrays[RecordKind.IO]) + len(trace.arrays[RecordKind.FILEOP]),
        "threads": load.threads,
        "elapsed_s": elapsed_s,
        "requests_per_s": len(requests) / elapsed_s,
        "bytes_per_s": int(size.sum()) / elapsed_s,
        "in_flight": {
            "mean": load.in_flight_mean,
            "max": load.in_flight_max,
            "shares": in_flight_shares(requests if measured else requests.iloc[:0]),
        },
        "response_time": response_times(requests, syncs) if measured else None,
        "think_time": distribution(think_times(requests)["think_ns"].to_numpy()) if measured else None,
        "page_cache": {
            "hitFrac": 1 - cached,
            "missFrac": miss_frac(trace, requests),
            "coldFrac": cold_frac(trace, requests)[0],
        },
        "block": _block_traffic(trace) if trace.measured and len(trace.arrays[RecordKind.BLOCK]) else None,
    }


def _block_traffic(trace: Trace) -> dict[str, Any]:
    """Block requests and bytes, without those of programs that were not traced, whole and by the class of their cause.

    A request of which pieces have several classes counts in each of them.
    """
    pieces = pieces_of(trace)
    ours = pieces[pieces["class"] != BlockDataClass.UNTRACED]
    classes = {
        member.name.lower(): _traffic(ours[ours["class"] == member])
        for member in BlockDataClass
        if (ours["class"] == member).any()
    }
    return {**_traffic(ours), "classes": classes}


def _traffic(pieces: pd.DataFrame) -> dict[str, int]:
    read = pieces["read"].to_numpy()
    counts = {}
    for name, part in (("read", pieces[read]), ("write", pieces[~read])):
        counts[f"{name}_requests"] = int(part["block"].nunique())
        counts[f"{name}_bytes"] = int(part["bytes"].sum())
    return counts


def _verdict(recording: Trace, order: OrderCheck, replay: Mapping[str, Any]) -> dict[str, Any]:
    """Whether the comparison can be trusted, why not, and what a reader should know that takes nothing away."""
    reasons, notes = [], []
    if any(is_lossy(recording, layer) for layer in LAYERS) or recording.header.lost:
        reasons.append("the recording of the replay lost records: its numbers are too low")
    for rule, result in order.rules.items():
        if result.violations and rule in order.promised:
            reasons.append(f"{result.violations} of {result.checked} operations broke the order of the rule {rule}")
        elif result.violations:
            notes.append(f"order {replay['order']} does not promise {rule}: {result.violations} operations broke it")
    if order.added:
        reasons.append(f"the replay did {order.added} reads or writes that are not in the trace")
    if replay["timing"] == "asap":
        notes.append("timing asap repeats no think times: elapsed time, rates and think times differ by it")
    if replay["stopped"] != "end":
        notes.append(f"the replay was ended by {replay['stopped']} and has only a part of the trace")
    return {"trustworthy": not reasons, "reasons": reasons, "notes": notes}


def load(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the result document of a replay that was recorded.

    Raises
    ------
    FlextraceError
        The file cannot be read, is no such document, or its replay was not recorded.
    """
    try:
        document = json.loads(Path(path).read_text())
    except OSError as error:
        raise FlextraceError(f"cannot read replay result {path}: {error.strerror}") from error
    except ValueError as error:
        raise FlextraceError(f"{path} is not a replay result: it is no JSON document ({error})") from error
    found = document.get("fidelity") if isinstance(document, dict) else None
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        raise FlextraceError(
            f"{path} has no comparison of a replay with its original: write it by "
            "'flextrace replay TRACE --directory DIR --record --output RESULT.json'"
        )
    return document
