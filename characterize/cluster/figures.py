# SPDX-License-Identifier: Apache-2.0
"""Turns a characterized set of recordings into the data behind its figures, by two more looks at its parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from characterize.characterization import Characterization
from characterize.cluster.part import PartTask, no_chunks, stream_of_part
from characterize.cluster.recording_set import RecordingSet
from characterize.counting.log_histogram import LogHistogram
from characterize.figure_data import (
    FigureData,
    Seen,
    figure_data,
    layers_with_places,
    places_and_times,
    spans_of,
)
from characterize.places import PlaceCounts, Spans
from characterize.requests import Layer
from characterize.stream import Stream

Counted = dict[Layer, tuple[PlaceCounts, dict[str, LogHistogram]]]


def figure_data_of_set(recordings: RecordingSet, numbers: Characterization) -> dict[Layer, FigureData]:
    """The data behind the figures of every layer that has requests.

    Parameters
    ----------
    recordings : RecordingSet
    numbers : Characterization
        Of that set.

    Returns
    -------
    dict of str to FigureData
        The same as from `characterize.figure_data.figure_data_of`, however many parts there are.
    """
    plan, engine, tasks = recordings.plan, recordings.engine, recordings.tasks(numbers.mmap)
    layers = layers_with_places(plan.facts, numbers)
    if not layers:
        return figure_data(plan.facts, numbers, {})
    spans = {layer: Spans() for layer in layers}
    for found in engine(partial(spans_of_part, layers=layers), tasks):
        for layer, its in found.items():
            spans[layer].merge(its)
    stream = Stream(plan.facts, no_chunks, plan.first_ns, plan.last_ns, plan.all_stacked)
    seen = {layer: Seen(stream, layer, its.files()) for layer, its in spans.items()}
    for counted in engine(partial(places_of_part, spans=spans), tasks):
        for layer, its in counted.items():
            seen[layer].merge(*its)
    return figure_data(plan.facts, numbers, seen)


def spans_of_part(task: PartTask, layers: Sequence[Layer]) -> dict[Layer, Spans]:
    """The first look at a part."""
    return spans_of(stream_of_part(task), task.mmap, layers)


def places_of_part(task: PartTask, spans: Mapping[Layer, Spans]) -> Counted:
    """The second look at a part; `spans`: of the whole set."""
    seen = places_and_times(stream_of_part(task), task.mmap, spans)
    return {layer: (its.places.counted, its.times) for layer, its in seen.items()}
