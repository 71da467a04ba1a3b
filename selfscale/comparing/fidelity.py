# SPDX-License-Identifier: Apache-2.0
"""Turns a trace and the recording of its replay into one document: the same numbers of both, and their distances.

Only the run is compared (`replayer.checking.replay_recording`): of the original what a replay repeats, of the replay
what its threads did, both from the start of their first operation to the end of their last one.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from characterize.counting.log_histogram import LogHistogram, bucket_of
from characterize.document import plain
from characterize.errors import FlextraceError
from characterize.stream import Stream
from characterize.trace import Trace
from replayer.checking.order_check import NEAR_OPERATIONS, OrderCheck, check_order
from replayer.checking.replay_recording import replay_part, run_part
from replayer.run import SCHEMA as REPLAY_SCHEMA
from selfscale.comparing.fidelity_side import KINDS, Side, side_of
from selfscale.read_document import check_document, read_document

SCHEMA = "flextrace.fidelity/1"

COMPARED_SHARE_MIN = 0.99
"""Of the operations that a replay repeats: with fewer both sides are not the same work. The engine, too, trusts no
result of which more than 1 % went wrong."""
CLOSES_OF_NOTHING = ("not_open", "shared_descriptor")
"""Why the engine leaves out a close that has no effect, which is known only when it runs: nothing is missing then."""

_REMEDY = "write it by 'flextrace replay TRACE --directory DIR --record --output RESULT.json', or with --device DEV"

PERCENTS = (0.1, 0.5, 1, 2, 5, 10, 20, 25, 30, 40, 50, 60, 70, 75, 80, 90, 95, 98, 99, 99.5, 99.9, 99.99, 100)


def fidelity_of(trace: Stream, recording: Stream, replay: Mapping[str, Any]) -> dict[str, Any]:
    """How a replay compares with what it repeated.

    Parameters
    ----------
    trace : Stream
        The original: recorded, altered, synthetic or imported.
    recording : Stream
        Of the replay, made as `replayer.running.recorder.recorder_command` says.
    replay : mapping
        Document ``flextrace.replay/1`` of the same replay.

    Returns
    -------
    dict
        The document ``flextrace.fidelity/1``. ``trustworthy`` is false where the recording lost records, the replay
        broke an order that it promises, or too little of the trace was compared; ``reasons`` says so.
    """
    run = replay_part(recording)
    order = check_order(trace, run, replay["order"])
    return document_of(comparison_of(run_part(trace), run), order, (trace.facts, recording.facts), replay)


def document_of(
    comparison: Mapping[str, Any], order: OrderCheck, recordings: tuple[Trace, Trace], replay: Mapping[str, Any]
) -> dict[str, Any]:
    """The document of a comparison, as from `compared`; `recordings`: of the original and of its replay."""
    executed = replay["operations"]["records"] - replay["operations"]["skipped"]
    differed = sum(replay["mismatches"].values())
    idle = sum(replay.get("skipped_reasons", {}).get(reason, 0) for reason in CLOSES_OF_NOTHING)
    share = order.found / (order.expected - idle) if order.expected > idle else None
    return plain(
        {
            "schema": SCHEMA,
            **comparison,
            "results": {"compared": executed, "differed": differed, "share": differed / executed if executed else None},
            "lateness": replay["accuracy"].get("lateness"),
            "order": order.as_document() | {"closes_of_nothing": idle, "share": share},
            "lost": {
                name: {kind.name: count for kind, count in facts.header.lost.items()}
                for name, facts in zip(("original", "replay"), recordings, strict=True)
            },
            **_verdict(recordings[1], order, share, replay),
        }
    )


def comparison_of(original: Stream, replay: Stream) -> dict[str, Any]:
    """The numbers of two runs, as from `run_part` and `replay_part`, and the distances of their distributions.

    Returns
    -------
    dict
        ``original`` and ``replay``, each as `fidelity_side.Side.numbers`; ``distance`` by kind of time (``read, write,
        sync, think``) and ``in_flight``, each as from `distance_of` or None; ``curves``: for the same kinds
        ``percent``, ``original_ns``, ``replay_ns``.
    """
    return compared(side_of(original), side_of(replay))


def compared(original: Side, replay: Side) -> dict[str, Any]:
    """The numbers of two runs and the distances of their distributions: see `comparison_of`."""
    sides = (original, replay)
    distance: dict[str, Any] = {kind: distance_of(*(side.times[kind] for side in sides)) for kind in KINDS}
    distance["in_flight"] = _in_flight_distance(*(side.numbers["in_flight"]["shares"] for side in sides))
    return {
        **{name: side.numbers for name, side in zip(("original", "replay"), sides, strict=True)},
        "distance": distance,
        "curves": {kind: _curve(*(side.times[kind] for side in sides)) for kind in KINDS},
    }


def distance_of(original: LogHistogram, replay: LogHistogram) -> dict[str, float] | None:
    """How far two distributions are apart; values that fall into one bucket of both, 0.4 % wide, count as equal for ks.

    Returns
    -------
    dict or None
        ``ks``: largest difference of the two distribution functions (Kolmogorov and Smirnov), 0 to 1. ``emd_share``:
        mean distance by which values have to be moved to make one of the other (Wasserstein, earth mover's), as a share
        of the original's mean; NaN where that is 0. None where either has no values.
    """
    if not (original.count and replay.count):
        return None
    from scipy import stats  # noqa: PLC0415 (slow to import)

    # Not by scipy's test, which has a probability as well, of no meaning for times that depend on each other.
    (values, counts), (other_values, other_counts) = original.buckets(), replay.buckets()
    places, other_places = ([bucket_of(value) for value in tops.tolist()] for tops in (values, other_values))
    every = np.union1d(places, other_places)
    reached = [
        np.concatenate([[0], np.cumsum(count)])[np.searchsorted(place, every, side="right")] / count.sum()
        for place, count in ((places, counts), (other_places, other_counts))
    ]
    moved, mean = float(stats.wasserstein_distance(values, other_values, counts, other_counts)), original.mean
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


def _curve(original: LogHistogram, replay: LogHistogram) -> dict[str, Any] | None:
    """Both distributions at the same percentages."""
    if not (original.count or replay.count):
        return None
    quantiles = [
        [times.quantile(percent / 100) for percent in PERCENTS] if times.count else None for times in (original, replay)
    ]
    return {"percent": PERCENTS, "original_ns": quantiles[0], "replay_ns": quantiles[1]}


def _verdict(recording: Trace, order: OrderCheck, share: float | None, replay: Mapping[str, Any]) -> dict[str, Any]:
    """Whether the comparison can be trusted, why not, and what a reader should know that takes nothing away."""
    reasons, notes = [], []
    if not recording.header.complete:
        reasons.append("the recording of the replay lost records: its numbers are too low")
    if share is None:
        reasons.append("nothing was compared: the trace has no operation that a replay repeats")
    elif share < COMPARED_SHARE_MIN:
        reasons.append(
            f"only {order.found} of {order.expected} operations that a replay repeats were compared "
            f"({share:.2%}): the numbers of the original are of all of them"
        )
    for rule, result in order.rules.items():
        if result.violations and rule in order.promised:
            reasons.append(f"{result.violations} of {result.checked} operations broke the order of the rule {rule}")
        elif result.violations:
            notes.append(f"order {replay['order']} does not promise {rule}: {result.violations} operations broke it")
    if order.ambiguous:
        notes.append(
            f"{order.ambiguous} opens and closes were not checked: the replay skipped others beside them that are like "
            "them, so that it is not known which of them it did"
        )
    if order.far:
        before = f"{order.far} operations began before the end of one more than {NEAR_OPERATIONS} before them"
        if "interval_order" in order.promised:
            reasons.append(f"{before}, against the rule interval_order")
        else:
            notes.append(f"{before}: whether they had to wait for it was not checked")
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
        The file cannot be read, is no such document, of a newer version, or its replay was not recorded.
    """
    document = read_document(path, "replay result", REPLAY_SCHEMA, _REMEDY)
    if "fidelity" not in document:
        raise FlextraceError(f"{path} has no comparison of a replay with its original: {_REMEDY}")
    check_document(document["fidelity"], path, "comparison of a replay", SCHEMA, _REMEDY)
    return document
