# SPDX-License-Identifier: Apache-2.0
"""Turns the errors of models on random workloads into the thesis's figures 5.3 to 5.6, model beside repeatability."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from characterize.colours import LINE, READ, REGION, SYNC, WRITE
from characterize.units import format_bytes
from characterize.workload import PARAMETERS
from selfscale.predicting.prediction_errors import (
    REPEATABILITY,
    PredictionErrors,
    by_parameter,
    cumulative,
    median_interval,
)
from selfscale.reporting.figures import Figure, as_shown, byte_ticks, log_axis, mark_size

_COLUMNS = 3
_OTHERS = (READ, WRITE, SYNC, "#c9a227", "#b3546b", "#4f7cac")
_LEGEND_HEIGHT = 90
"""Pixels above a figure: the names of all models may need two lines, and titles stand below them."""
_ERROR_SHOWN_MAX = 1.0
"""Error up to which axes go by themselves; tables have all."""


def colours(errors: PredictionErrors) -> dict[str, str]:
    """A colour per model: the one that is used has the report's own, repeatability is grey."""
    others = iter(_OTHERS * 2)
    fixed = {errors.used: LINE, REPEATABILITY: REGION}
    return {model: fixed.get(model) or next(others) for model in errors.models}


def title_of(errors: PredictionErrors, model: str) -> str:
    """A model's name, with what it is."""
    return f"{model} (used)" if model == errors.used else model


def prediction_figures(
    errors: PredictionErrors, boundaries_bytes: Sequence[float], applications: pd.DataFrame
) -> list[Figure]:
    """Figures 5.3a, 5.3b, 5.3c and 5.4 of one machine.

    Parameters
    ----------
    errors : PredictionErrors
    boundaries_bytes : sequence of float
        Borders between its performance regions.
    applications : DataFrame
        As from `selfscale.predicting.prediction_errors.applications_of`.
    """
    figures = [scatter(errors, applications), cumulative_errors(errors)]
    if errors.used:
        figures.append(certainty(errors))
    return [*figures, errors_by_parameter(errors, boundaries_bytes)]


def scatter(errors: PredictionErrors, applications: pd.DataFrame) -> Figure:
    """Figure 5.3a, a graph for each model, applications by their names."""
    models, colour = errors.models, colours(errors)
    rows = -(-len(models) // _COLUMNS)
    medians = errors.table.groupby("model")["error"].median()
    titles = [f"{title_of(errors, model)}, {medians[model]:.1%}" for model in models]
    figure = _grid(titles)
    every = pd.concat([errors.table, applications], ignore_index=True) if len(applications) else errors.table
    data = every.assign(
        measured_MB_per_s=every["measured_bytes_per_s"] / 1e6, estimated_MB_per_s=every["estimated_bytes_per_s"] / 1e6
    ).drop(columns=["measured_bytes_per_s", "estimated_bytes_per_s"])
    shown = data[["measured_MB_per_s", "estimated_MB_per_s"]]
    ends = [0.8 * shown.min().min(), 1.25 * shown.max().max()]
    for index, model in enumerate(models):
        own, named = data["model"] == model, data["uniqueBytes"].isna()
        part, letters = data[own & ~named], data[own & named]
        place = {"row": index // _COLUMNS + 1, "col": index % _COLUMNS + 1}
        line = {"color": REGION, "dash": "dot"}
        figure.add_trace(go.Scatter(x=ends, y=ends, mode="lines", line=line, hoverinfo="skip"), **place)
        figure.add_trace(
            go.Scatter(
                x=part["measured_MB_per_s"].tolist(),
                y=part["estimated_MB_per_s"].tolist(),
                mode="markers",
                marker={"color": colour[model], "size": 6},
                customdata=[
                    f"{format_bytes(size)}, {error:.1%} off"
                    for size, error in zip(part["uniqueBytes"], part["error"], strict=True)
                ],
                hovertemplate="measured %{x:.4g}, %{y:.4g} MB/s<br>uniqueBytes %{customdata}<extra></extra>",
                name=model,
            ),
            **place,
        )
        if len(letters):
            figure.add_trace(
                go.Scatter(
                    x=letters["measured_MB_per_s"].tolist(),
                    y=letters["estimated_MB_per_s"].tolist(),
                    mode="markers+text",
                    marker={"color": WRITE, "size": 10, "symbol": "diamond"},
                    text=list(map(as_shown, letters["workload"])),
                    textposition="top center",
                    name=f"applications, {model}",
                ),
                **place,
            )
        figure.update_xaxes(title_text="measured, MB/s", **log_axis(ends), **place)
        figure.update_yaxes(title_text="predicted, MB/s" if place["col"] == 1 else "", **log_axis(ends), **place)
    figure.update_layout(height=110 + 310 * rows, showlegend=False)
    count = errors.table["workload"].nunique()
    sentence = (
        f"Predicted against measured throughput of {count} random workloads (thesis, figures 5.3a and 5.5a), with the "
        "median error of each model; on the line both are equal. Repeatability is the second "
        "measurement of each workload against its first one: how well the machine predicts itself."
    )
    if len(applications):
        sentence += " Diamonds are applications: throughput in I/O as recorded, and as predicted from their parameters."
    return Figure("Predicted against measured", sentence, figure, data)


def cumulative_errors(errors: PredictionErrors) -> Figure:
    """Figure 5.3b."""
    data, colour = cumulative(errors), colours(errors)
    figure = go.Figure()
    for model in errors.models:
        part = data[data["model"] == model]
        dash = "dot" if model == REPEATABILITY else "solid"
        figure.add_trace(
            go.Scatter(
                x=(100 * part["error"]).tolist(),
                y=(100 * part["share"]).tolist(),
                mode="lines",
                line={"color": colour[model], "width": 3 if model == errors.used else 1.8, "dash": dash, "shape": "hv"},
                name=title_of(errors, model),
            )
        )
    figure.update_xaxes(title_text="error, percent", range=[0, 100 * min(data["error"].max(), _ERROR_SHOWN_MAX)])
    figure.update_yaxes(title_text="percent of the workloads with at most this error", range=[0, 101])
    figure.update_layout(height=430, margin={"t": _LEGEND_HEIGHT})
    beyond = data[data["error"] > _ERROR_SHOWN_MAX].groupby("model").size()
    note = f"Not shown: errors beyond 100 % ({', '.join(f'{name} {n}' for name, n in beyond.items())})."
    sentence = (
        "How many of the random workloads a model predicts with at most some error (thesis, figures 5.3b and 5.5b). "
        "Error is |predicted - measured| / measured. The closer a line is to the dotted one, the less is left to gain."
    )
    return Figure("Cumulative error", sentence, figure, data, note=note if len(beyond) else "")


def certainty(errors: PredictionErrors) -> Figure:
    """Figure 5.3c, of the model that is used."""
    data = median_interval(errors.of(errors.used)["error"].to_numpy())
    figure, x = go.Figure(), data["workloads"].tolist()
    edge: dict[str, Any] = {"mode": "lines", "line": {"color": REGION, "width": 0.5}, "showlegend": False}
    known = data.dropna()
    around = {"x": known["workloads"].tolist(), **edge}
    figure.add_trace(go.Scatter(y=(100 * known["low"]).tolist(), **around))
    figure.add_trace(go.Scatter(y=(100 * known["high"]).tolist(), fill="tonexty", **around))
    figure.add_trace(
        go.Scatter(x=x, y=(100 * data["median"]).tolist(), mode="lines", line={"color": LINE}, name="median error")
    )
    figure.update_xaxes(title_text="random workloads")
    figure.update_yaxes(title_text="median error, percent", rangemode="tozero")
    last = data.iloc[-1]
    found = f"{last['median']:.1%}"
    if last["low"] == last["low"]:
        found += f", with 90 % confidence between {last['low']:.1%} and {last['high']:.1%}"
    sentence = (
        f"How certain the median error of the {errors.used} model is after how many workloads, in the order of "
        f"measuring (thesis, figure 5.3c): {found}. The band is its 90 % confidence interval."
    )
    return Figure("Certainty of the median error", sentence, figure, data)


def errors_by_parameter(errors: PredictionErrors, boundaries_bytes: Sequence[float]) -> Figure:
    """Figure 5.4: median error against each parameter, the borders of the regions marked."""
    figure = _grid(list(PARAMETERS))
    colour = colours(errors)
    behind = sorted(errors.models, key=lambda model: model != REPEATABILITY)
    data = pd.concat([by_parameter(errors, parameter) for parameter in PARAMETERS], ignore_index=True)
    for index, parameter in enumerate(PARAMETERS):
        place = {"row": index // _COLUMNS + 1, "col": index % _COLUMNS + 1}
        drawn = data[data["parameter"] == parameter]
        for model in behind:
            part = drawn[drawn["model"] == model]
            repeated = model == REPEATABILITY
            figure.add_trace(
                go.Scatter(
                    x=part["value"].tolist(),
                    y=(100 * part["median_error"]).tolist(),
                    mode="lines" if repeated else "lines+markers",
                    line={"color": colour[model], "width": 3 if model == errors.used else 1.5},
                    fill="tozeroy" if repeated else None,
                    name=title_of(errors, model),
                    legendgroup=model,
                    showlegend=index == 0,
                ),
                **place,
            )
        figure.update_xaxes(_axis(parameter, drawn["value"]), **place)
        title = "median error, percent" if place["col"] == 1 else ""
        figure.update_yaxes(rangemode="tozero", title_text=title, **place)
    for number, border in enumerate(boundaries_bytes):
        mark_size(figure, border, format_bytes(border), level=0.98 - 0.1 * number)
    figure.update_layout(height=660, margin={"t": _LEGEND_HEIGHT})
    sentence = (
        "How the median error goes with each parameter (thesis, figures 5.4 and 5.6): every point is the median of "
        "workloads that are neighbours in that parameter. The grey area is the repeatability; vertical lines are the "
        "borders between performance regions, next to which throughput is least certain."
    )
    return Figure("Error against each parameter", sentence, figure, data)


def _grid(titles: list[str]) -> go.Figure:
    """As many graphs as titles, in rows of `_COLUMNS`."""
    rows = -(-len(titles) // _COLUMNS)
    specs: list[list[dict[str, Any] | None]] = [
        [{} if row * _COLUMNS + column < len(titles) else None for column in range(_COLUMNS)] for row in range(rows)
    ]
    return make_subplots(rows=rows, cols=_COLUMNS, specs=specs, subplot_titles=titles, vertical_spacing=0.36 / rows)


def _axis(parameter: str, values: pd.Series) -> dict[str, Any]:
    if parameter in ("uniqueBytes", "sizeMean"):
        return byte_ticks(values.min(), values.max(), 6)
    if parameter == "processNum":
        return {"tickvals": sorted(set(values))}
    return {"range": [-0.05, 1.05]}
