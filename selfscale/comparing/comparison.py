# SPDX-License-Identifier: Apache-2.0
"""Turns measurements of one workload by several means into one table with errors (Chen 1992, table 3.2 and figure 5.2).

Pure arithmetic on documents: what is run to get the measurements is in `selfscale.comparing.comparison_runs`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np
import pandas as pd

from characterize.document import plain
from characterize.workload import Workload
from selfscale.measuring.environment import same_limit
from selfscale.read_document import read_document

SCHEMA = "flextrace.comparison/1"

COLD_TOLERANCE = 0.05
"""Two runs whose coldFrac differs by more than this started from different page caches."""


@dataclass(frozen=True)
class Column:
    """One quantity of the table.

    Attributes
    ----------
    name : str
        Key in documents and DataFrame, unit last.
    title, unit : str
        As printed.
    scale : float
        Printed value = value x scale.
    meaning : str
        The definition, one sentence.
    """

    name: str
    title: str
    unit: str
    scale: float
    meaning: str


COLUMNS = (
    Column(
        "throughput_in_io_bytes_per_s",
        "throughput in I/O",
        "MB/s",
        1e-6,
        "bytes / time with a data request in flight; Willy and the prediction have no think time, so compare this one",
    ),
    Column(
        "throughput_bytes_per_s",
        "throughput elapsed",
        "MB/s",
        1e-6,
        "bytes / elapsed time, only of rows that have the application's own computing between requests",
    ),
    Column("read_mean_ns", "read response", "us", 1e-3, "mean time of a read request"),
    Column("write_mean_ns", "write response", "us", 1e-3, "mean time of a write request; without its sync"),
    Column(
        "mean_ns",
        "average response",
        "us",
        1e-3,
        "mean time of a request; of a prediction by Little's law: processNum x sizeMean / throughput (3.4.2)",
    ),
    Column(
        "sync_per_request_ns",
        "sync per request",
        "us",
        1e-3,
        "time in fsync, fdatasync and sync_file_range (at least one running) / number of read and write requests",
    ),
)

Sample = dict[str, float | None]
"""One run's value of every column; None where the run does not have it."""


@dataclass
class Row:
    """One line of the table: the same workload by one means.

    Attributes
    ----------
    name : str
        ``application``, ``replay``, ``willy``, ``willy_extended``, ``prediction``, ...
    label : str
        As printed.
    made_by : str
        What was run or computed, one sentence.
    workload : Workload
        The five parameters that this row stands for.
    samples : list of Sample
        One per repetition.
    memory_limit_bytes : int or None
        Limit of the memory group that it ran in; None = no limit.
    cold_frac : float or None
        Share of read bytes that were not in the page cache when first touched; None = not known.
    page_cache : str
        How the page cache was before the first request, in words.
    reasons : list of str
        Why the row cannot be trusted as a comparison with the application; empty = it can.
    notes : list of str
        What a reader should know that takes nothing away.
    details : dict
        More of the row for the document (interval, model, replay counts, ...).
    """

    name: str
    label: str
    made_by: str
    workload: Workload
    samples: list[Sample]
    memory_limit_bytes: int | None
    cold_frac: float | None
    page_cache: str
    reasons: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)


def sample_of(document: Mapping[str, Any]) -> Sample:
    """The columns of a characterization's layer or of a replay's result, which use the same names.

    Parameters
    ----------
    document : mapping
        With ``throughput_bytes_per_s``, ``throughput_in_io_bytes_per_s``, ``time_in_sync_s`` and ``response_time``
        (``read`` and ``write``, each with ``count`` and ``mean_ns``); what is missing is None in the sample.
    """
    times = document.get("response_time") or {}
    counts: dict[str, int] = {}
    means: dict[str, float] = {}
    for kind in ("read", "write"):
        time = times.get(kind) or {}
        if time.get("count") and time.get("mean_ns") is not None:
            counts[kind], means[kind] = time["count"], time["mean_ns"]
    requests = sum(counts.values())
    sync_s = document.get("time_in_sync_s")
    return {
        "throughput_in_io_bytes_per_s": plain(document.get("throughput_in_io_bytes_per_s")),
        "throughput_bytes_per_s": plain(document.get("throughput_bytes_per_s")),
        "read_mean_ns": means.get("read"),
        "write_mean_ns": means.get("write"),
        "mean_ns": sum(counts[kind] * means[kind] for kind in counts) / requests if requests else None,
        "sync_per_request_ns": sync_s * 1e9 / requests if sync_s is not None and requests else None,
    }


def little_response_time_ns(workload: Workload, throughput_bytes_per_s: float) -> float | None:
    """Mean response time of a closed system without think time, ns, by Little's law (Chen 1992, equation in 3.4.2).

    Notes
    -----
    throughput = sizeMean / (cpuThink + responseTime) x processNum, with cpuThink = 0.
    """
    if not throughput_bytes_per_s > 0:
        return None
    return plain(workload.process_num * workload.size_mean / throughput_bytes_per_s * 1e9)


def mark_differences(rows: Sequence[Row]) -> None:
    """Add to every row's ``reasons`` where its memory limit or its page cache at the start is not the first row's."""
    application = rows[0]
    for row in rows[1:]:
        if not same_limit(row.memory_limit_bytes, application.memory_limit_bytes):
            limits = [_limit(one.memory_limit_bytes) for one in (row, application)]
            row.reasons.append(f"memory limit {limits[0]}, the application had {limits[1]}")
        if application.cold_frac is None or row.cold_frac is None:
            unknown = "application's" if application.cold_frac is None else "row's"
            row.reasons.append(
                f"the {unknown} share of cold reads was not measured, so equal page caches cannot be shown"
            )
        elif abs(row.cold_frac - application.cold_frac) > COLD_TOLERANCE:
            row.reasons.append(
                f"{row.cold_frac:.0%} of its read bytes cold, the application had {application.cold_frac:.0%}"
            )


def _limit(limit_bytes: int | None) -> str:
    return "none" if limit_bytes is None else f"{limit_bytes / 2**20:.6g} MiB"


def _spread(samples: Sequence[Sample], name: str) -> tuple[float | None, float | None, float | None]:
    """Median, smallest and largest of a column over the repetitions that have it."""
    values = [value for sample in samples if (value := sample.get(name)) is not None]
    return (median(values), min(values), max(values)) if values else (None, None, None)


def row_document(row: Row, application: Row) -> dict[str, Any]:
    """One row with median, range over the repetitions, and error against the application."""
    document: dict[str, Any] = {
        "row": row.name,
        "label": row.label,
        "made_by": row.made_by,
        "parameters": row.workload.as_document(),
        "memory_limit_bytes": row.memory_limit_bytes,
        "coldFrac": row.cold_frac,
        "page_cache": row.page_cache,
        "repetitions": len(row.samples),
        "median": {},
        "low": {},
        "high": {},
        "error": {},
        "samples": row.samples,
        "trustworthy": not row.reasons,
        "reasons": row.reasons,
        "notes": row.notes,
        **row.details,
    }
    for column in COLUMNS:
        middle, low, high = _spread(row.samples, column.name)
        truth = _spread(application.samples, column.name)[0]
        document["median"][column.name] = middle
        document["low"][column.name] = low
        document["high"][column.name] = high
        known = row is not application and middle is not None and truth is not None and truth > 0
        document["error"][column.name] = (middle - truth) / truth if known else None  # type: ignore[operator]
    return document


def comparison_document(
    rows: Sequence[Row], must_hold: Sequence[str], reasons: Sequence[str] = (), **provenance: Any
) -> dict[str, Any]:
    """The whole comparison, schema ``flextrace.comparison/1``.

    Parameters
    ----------
    rows : sequence of Row
        The application first.
    must_hold : sequence of str
        Names of the rows on which ``trustworthy`` of the whole depends. A row that by its definition cannot be brought
        to the application's page cache (Willy of the thesis starts warm) marks itself only.
    reasons : sequence of str
        Why the whole cannot be trusted, beside what those rows say.
    **provenance
        Further keys of the document: trace, hashes, command, ...
    """
    found = [f"{row.label}: {reason}" for row in rows for reason in row.reasons if row.name in must_hold]
    found = list(dict.fromkeys([*reasons, *found]))
    return {
        "schema": SCHEMA,
        **provenance,
        "columns": {
            column.name: {"title": column.title, "unit": column.unit, "scale": column.scale, "meaning": column.meaning}
            for column in COLUMNS
        },
        "rows": [row_document(row, rows[0]) for row in rows],
        "trustworthy": not found,
        "reasons": found,
    }


def table_of(document: Mapping[str, Any]) -> pd.DataFrame:
    """A comparison as a DataFrame.

    Parameters
    ----------
    document : mapping
        Schema ``flextrace.comparison/1``.

    Returns
    -------
    DataFrame, index ``row``
        Per column of `COLUMNS` its median, ``error_`` + name (a share of the application's, signed), ``low_`` + name
        and ``high_`` + name (smallest and largest repetition); ``memory_limit_bytes``, ``coldFrac``, ``trustworthy``,
        ``label``.
    """
    records = []
    for row in document["rows"]:
        record = {"row": row["row"], "label": row["label"]}
        for column in COLUMNS:
            for prefix, part in (("", "median"), ("error_", "error"), ("low_", "low"), ("high_", "high")):
                value = row[part].get(column.name)
                record[prefix + column.name] = np.nan if value is None else value
        for name in ("memory_limit_bytes", "coldFrac"):
            record[name] = np.nan if row[name] is None else row[name]
        record["trustworthy"] = row["trustworthy"]
        records.append(record)
    return pd.DataFrame.from_records(records).set_index("row")


def remarks_of(document: Mapping[str, Any]) -> list[tuple[bool, str, list[str]]]:
    """Every remark of a comparison once: whether it takes from trust, its text, labels of the rows that it is of."""
    remarks: dict[tuple[bool, str], list[str]] = {}
    for row in document["rows"]:
        for doubt, texts in ((True, row["reasons"]), (False, row["notes"])):
            for text in texts:
                remarks.setdefault((doubt, text), []).append(row["label"])
    return [(doubt, text, labels) for (doubt, text), labels in remarks.items()]


@dataclass
class Comparison:
    """A comparison: ``document`` (schema ``flextrace.comparison/1``) and the same as a DataFrame, ``table``."""

    document: dict[str, Any]

    @property
    def table(self) -> pd.DataFrame:
        """See `table_of`."""
        return table_of(self.document)

    @property
    def trustworthy(self) -> bool:
        """Whether the rows that claim the application's conditions had them, and ran well."""
        return bool(self.document["trustworthy"])


def load(path: str | os.PathLike[str]) -> Comparison:
    """Read a comparison document.

    Raises
    ------
    FlextraceError
        The file cannot be read or is no comparison.
    """
    return Comparison(read_document(path, "comparison", SCHEMA, "make one with 'flextrace compare -o FILE.json'"))
