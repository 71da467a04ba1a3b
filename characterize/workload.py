# SPDX-License-Identifier: Apache-2.0
"""Turns a trace into the five parameters of Chen 1992, chapter 3 (table 3.1), as design.md section 4 defines them."""

from __future__ import annotations

import dataclasses
import math
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from characterize.counting.intervals import overlap_at_starts, union_length
from characterize.errors import FlextraceError
from characterize.layout import RecordKind
from characterize.loss import Totals, is_lossy, totals_of
from characterize.requests import STREAM_OF, Layer, Mmap, requests_of, times_measured
from characterize.shape import finite
from characterize.trace import Trace

PARAMETERS = ("uniqueBytes", "seqFrac", "readFrac", "sizeMean", "processNum")
FIELD_OF = {
    "uniqueBytes": "unique_bytes",
    "seqFrac": "seq_frac",
    "readFrac": "read_frac",
    "sizeMean": "size_mean",
    "processNum": "process_num",
}


@dataclass(frozen=True)
class Workload:
    """The five parameters of the thesis's workload model (3.4.1); NaN where one has no meaning (``null`` in documents).

    Attributes
    ----------
    unique_bytes : float
        Bytes in the union of all requests.
    seq_frac, read_frac : float
        Shares of all requests, 0 to 1.
    size_mean : float
        Bytes per request.
    process_num : float
        Largest number of requests in flight at once.
    """

    unique_bytes: float
    seq_frac: float
    read_frac: float
    size_mean: float
    process_num: float

    def as_document(self) -> dict[str, float | None]:
        """The five by the papers' names, as JSON needs them: whole numbers as int, NaN as None."""
        return {name: _json_number(getattr(self, field)) for name, field in FIELD_OF.items()}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Workload:
        """The reverse of `as_document`; other keys are ignored.

        Raises
        ------
        FlextraceError
            A parameter is missing or is not a number.
        """
        values = {}
        for name, field in FIELD_OF.items():
            if name not in document:
                raise FlextraceError(f"workload has no {name}: give all of {', '.join(PARAMETERS)}")
            value = document[name]
            if value is not None and not finite(value):
                raise FlextraceError(f"workload has {name} = {reprlib.repr(value)}: give a number")
            values[field] = math.nan if value is None else float(value)
        return cls(**values)

    def replace(self, **changes: float) -> Workload:
        """The same workload with some fields (``unique_bytes=...``) changed."""
        return dataclasses.replace(self, **changes)


def _json_number(value: float) -> float | None:
    if not math.isfinite(value):
        return None
    return int(value) if value == int(value) else float(value)


def workload_of(trace: Trace, layer: Layer = "vfs", mmap: Mmap = "data") -> Workload:
    """The five parameters of a trace.

    Parameters
    ----------
    trace : Trace
    layer : {"vfs", "block"}
        What counts as a request, see `characterize.requests.requests_of`.
    mmap : {"data", "all", "none"}
        Which accesses to mapped files count, see `characterize.requests.left_out`.

    Returns
    -------
    Workload
        Of a trace without requests uniqueBytes is 0 and the shares and the mean are NaN. Where records were lost,
        readFrac, sizeMean and processNum are made from the recorder's totals (`characterize.loss`) if it has them.
    """
    totals = totals_of(trace, mmap) if layer == "vfs" and is_lossy(trace) else None
    return with_totals(workload_of_records(trace, layer, mmap), totals)


def with_totals(workload: Workload, totals: Totals | None) -> Workload:
    """The five parameters of records of which some were lost, with what totals say of all."""
    if totals is None or not totals.requests:
        return workload
    return workload.replace(
        read_frac=totals.reads / totals.requests,
        size_mean=(totals.read_bytes + totals.written_bytes) / totals.requests,
        process_num=float(np.fmax(workload.process_num, totals.in_flight_max)),
    )


def workload_of_records(trace: Trace, layer: Layer = "vfs", mmap: Mmap = "data") -> Workload:
    """The five parameters of the records that are there, as `workload_of` has them without losses."""
    requests = requests_of(trace, layer, mmap)
    return Workload(
        unique_bytes=float(unique_bytes(requests)),
        seq_frac=_share(sequential(requests, STREAM_OF[layer])),
        read_frac=_share(requests["read"].to_numpy()),
        size_mean=float(requests["bytes"].mean()),
        process_num=process_num(trace, requests, layer),
    )


def _share(mask: np.ndarray) -> float:
    return float(mask.mean()) if len(mask) else math.nan


def unique_bytes(requests: pd.DataFrame) -> int:
    """Exact number of bytes in the union of ``[offset, offset + bytes)`` over all requests, per file, summed."""
    offset, size = requests["offset"].to_numpy(), requests["bytes"].to_numpy()
    return union_length(offset, offset + size, requests["file"].to_numpy())


def sequential(requests: pd.DataFrame, stream: tuple[str, ...] = STREAM_OF["vfs"]) -> np.ndarray:
    """Which requests start where the previous request of their stream ended.

    Parameters
    ----------
    requests : DataFrame
        As from `requests_of`, in the order of the starts.
    stream : tuple of column names
        What makes a stream: (thread, file) at the application's layer, the device at the block layer, where a
        thread has no meaning (a worker of the kernel writes for everybody; foreign traces have none).

    Returns
    -------
    ndarray of bool, shape (n,)
        In the order of `requests`; the first request of a stream is False.
    """
    order = np.lexsort([requests[name].to_numpy() for name in reversed(stream)])
    offset, size = requests["offset"].to_numpy()[order], requests["bytes"].to_numpy()[order]
    continues = np.zeros(len(order), bool)
    continues[1:] = offset[1:] == (offset + size)[:-1]
    for name in stream:
        key = requests[name].to_numpy()[order]
        continues[1:] &= key[1:] == key[:-1]
    result = np.zeros(len(order), bool)
    result[order] = continues
    return result


def process_num(trace: Trace, requests: pd.DataFrame, layer: Layer = "vfs") -> float:
    """Largest number of requests in flight at once (table 3.1: "the maximum number of simultaneously occurring I/Os").

    Of a trace whose times are not measurements it is the one that its maker declared for the layer that it was made of,
    NaN if none did. A request that ends in the same nanosecond in which another one starts has ended before.
    """
    if not times_measured(trace):
        of_blocks = len(trace.arrays[RecordKind.BLOCK]) and not len(trace.arrays[RecordKind.IO])
        declares = layer == ("block" if of_blocks else "vfs")
        return float(trace.declared.get("processNum", math.nan)) if declares else math.nan
    in_flight = overlap_at_starts(requests["start_ns"].to_numpy(), requests["end_ns"].to_numpy())
    return float(in_flight.max(initial=0))
