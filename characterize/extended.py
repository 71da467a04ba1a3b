# SPDX-License-Identifier: Apache-2.0
"""Turns a trace into the extended parameters (design.md section 4): what the five of 1992 cannot say.

Whether data was in the page cache, whether writes extend files, how often the application syncs and bypasses the cache.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from characterize.appended_ranges import AppendedRanges
from characterize.border import Border
from characterize.counting.grouped_sums import GroupedSums
from characterize.file_sizes import UNKNOWN, FileSizes
from characterize.layout import NOT_MEASURED_U32, NOT_MEASURED_U64, BlockFlag, IoFlag, RecordKind
from characterize.references import BlockNumbers, Columns
from characterize.requests import columns_of
from characterize.touched import FreshBytes
from characterize.trace import Trace

NOT_RECORDED = -1
_BLOCK_FLAGS = {"readaheadFrac": BlockFlag.READAHEAD, "metadataFrac": BlockFlag.META, "fuaFrac": BlockFlag.FUA}


class ExtendedSummary:
    """The extended parameters of requests of the application's layer that come in chunks.

    The chunks have columns more, which depend on what came before: ``fresh`` (`characterize.touched.FreshBytes`) and
    those of `characterize.file_sizes`; of a part that follows another, ``number`` of the request in it, too.

    Parameters
    ----------
    files : ndarray
        FILE records.
    measured : bool
        Whether the trace has run: what it missed may else be its parent's.
    follows : bool
        Whether to keep the reads of fresh bytes, and what was appended: after a part before it may be less.
    """

    def __init__(self, files: np.ndarray, measured: bool, *, follows: bool = False) -> None:
        self._measured, self._follows = measured, follows
        self._fresh: list[np.ndarray] = []
        self._appended = AppendedRanges()
        self._files = files
        self._sums = dict.fromkeys(
            (
                *("requests", "direct", "writes", "stable_writes", "written", "sized", "appended", "read", "syncs"),
                *("missed", "missed_of", "cached_missed", "cached_missed_of", "cold"),
            ),
            0,
        )
        # Of reads whose missed bytes were not recorded, by file: fresh bytes, and all.
        self._unrecorded = GroupedSums("fresh", "bytes")

    def add(self, requests: Columns, syncs: int) -> None:
        """Count a chunk, and a number of syncs."""
        flags, size, read, fresh = (requests[name] for name in ("flags", "bytes", "read", "fresh"))
        missed, appended, write = requests["missed_bytes"], requests["appended"], ~read
        direct = (flags & IoFlag.DIRECT) != 0
        recorded = read & (missed != NOT_MEASURED_U32) & self._measured
        sized = write & (appended != UNKNOWN)
        of = {name: size[chosen] for name, chosen in (("missed", recorded), ("cached_missed", recorded & ~direct))}
        missed = missed.astype(np.int64)
        for name, count in (
            ("requests", len(read)),
            ("direct", direct.sum()),
            ("writes", write.sum()),
            ("stable_writes", (write & ((flags & (IoFlag.SYNC | IoFlag.DSYNC)) != 0)).sum()),
            ("written", size[write].sum()),
            ("sized", size[sized].sum()),
            ("appended", appended[sized].sum()),
            ("read", size[read].sum()),
            ("syncs", syncs),
            ("missed", missed[recorded].sum()),
            ("missed_of", of["missed"].sum()),
            ("cached_missed", missed[recorded & ~direct].sum()),
            ("cached_missed_of", of["cached_missed"].sum()),
            ("cold", np.minimum(missed, fresh)[recorded].sum()),
        ):
            self._sums[name] += int(count)
        if self._follows:
            chosen = np.flatnonzero(read & (fresh > 0))
            known = np.where(recorded, missed, NOT_RECORDED)[chosen]
            rows = (requests["number"][chosen], fresh[chosen], known, requests["file"][chosen])
            self._fresh.append(np.column_stack(rows).astype(np.int64))
            self._appended.add(requests)
        rest = read & ~recorded
        if rest.any():
            self._unrecorded.add(requests["file"][rest], fresh[rest], size[rest])

    def merge(self, other: ExtendedSummary) -> None:
        """Count what `other` counted, too."""
        for name, count in other._sums.items():
            self._sums[name] += count
        self._unrecorded.merge(other._unrecorded)

    def follow(self, following: ExtendedSummary, border: Border) -> None:
        """Count what `following` counted, given what of it is fresh and appended after the parts before."""
        self.merge(following)
        self._sums["appended"] -= following._appended.within(border.sizes)
        number, before, missed, file = np.concatenate([np.zeros((0, 4), np.int64), *following._fresh]).T
        now = border.fresh[np.searchsorted(border.request, number)]
        recorded = missed != NOT_RECORDED
        self._sums["cold"] += int((np.minimum(missed, now) - np.minimum(missed, before))[recorded].sum())
        rest = ~recorded
        self._unrecorded.add(file[rest], (now - before)[rest], np.zeros(rest.sum(), np.int64))

    def result(self) -> dict[str, float]:
        """The parameters, as in `characterize.definitions`; NaN where one has no meaning or was not measured."""
        sums = self._sums
        append = _ratio(sums["appended"], sums["sized"])
        cold, measured_share = self._cold()
        return {
            "coldFrac": cold,
            "coldFracMeasuredShare": measured_share,
            "missFrac": _ratio(sums["missed"], sums["missed_of"]),
            "cacheHitFrac": 1 - _ratio(sums["cached_missed"], sums["cached_missed_of"]),
            "appendFrac": append,
            "overwriteFrac": 1 - append,
            "syncFrac": _ratio(sums["syncs"], sums["writes"]),
            "bytesPerSync": _ratio(sums["written"], sums["syncs"]),
            "syncWriteFrac": _ratio(sums["stable_writes"], sums["writes"]),
            "directFrac": _ratio(sums["direct"], sums["requests"]),
        }

    def _cold(self) -> tuple[float, float]:
        """coldFrac and coldFracMeasuredShare."""
        file, (fresh, size) = self._unrecorded.result()
        missing = missing_shares(self._files).reindex(file).to_numpy()
        known = ~np.isnan(missing)
        cold = self._sums["cold"] + float(fresh[known] @ missing[known])
        of = self._sums["missed_of"] + int(size[known].sum())
        return _ratio(cold, of), _ratio(of, self._sums["read"])


class BlockFlagsSummary:
    """What the block layer says of its requests; mergeable in any order."""

    def __init__(self) -> None:
        self._requests = 0
        self._counts = dict.fromkeys(_BLOCK_FLAGS, 0)

    def add(self, requests: Columns) -> None:
        """Count a chunk."""
        self._requests += len(requests["flags"])
        for name, flag in _BLOCK_FLAGS.items():
            self._counts[name] += int(((requests["flags"] & flag) != 0).sum())

    def merge(self, other: BlockFlagsSummary) -> None:
        """Count what `other` counted, too."""
        self._requests += other._requests
        for name, count in other._counts.items():
            self._counts[name] += count

    def result(self, linked: float) -> dict[str, float]:
        """The shares, and attributedFrac, which is known from the links; `characterize.definitions` explains them."""
        shares = {name: _ratio(count, self._requests) for name, count in self._counts.items()}
        return {"attributedFrac": linked, **shares}


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else math.nan


def missing_shares(files: np.ndarray) -> pd.Series:
    """Of every file the share that was not in the page cache at first sight (1 if its size is 0), where measured."""
    files = files[files["resident_bytes"] != NOT_MEASURED_U64]
    size, resident = files["size_bytes"].astype(np.float64), files["resident_bytes"].astype(np.float64)
    missing = np.ones(len(files))
    np.divide(resident, size, out=missing, where=size > 0)
    missing = np.where(size > 0, np.clip(1 - missing, 0, 1), 1.0)
    missing_of = pd.Series(missing, index=files["file"].astype(np.int64))
    return missing_of[~missing_of.index.duplicated()]


def extended_of(trace: Trace, requests: pd.DataFrame, syncs: pd.DataFrame) -> dict[str, float]:
    """The extended parameters of the application's layer, as from `ExtendedSummary.result`.

    Parameters
    ----------
    trace : Trace
    requests : DataFrame
        `characterize.requests.requests_of` this trace, layer vfs.
    syncs : DataFrame
        `characterize.response_time.syncs_of` this trace.
    """
    files, fileops = trace.arrays[RecordKind.FILE], trace.arrays[RecordKind.FILEOP]
    columns, numbers, touched = columns_of(requests), BlockNumbers(), FreshBytes()
    fresh = [np.zeros(0, np.int64), *(touched.add(columns, batch) for batch in numbers.references(columns))]
    columns["fresh"] = np.concatenate(fresh)
    ordered = fileops[np.argsort(fileops["start_ns"], kind="stable")]
    columns |= FileSizes(files).appended(columns, ordered)
    summary = ExtendedSummary(files, trace.measured)
    summary.add(columns, len(syncs))
    return summary.result()


def cold_frac(trace: Trace, requests: pd.DataFrame) -> tuple[float, float]:
    """coldFrac and coldFracMeasuredShare: what was not in the page cache when it was first touched.

    Of a read whose missed bytes were recorded, those of them that nothing touched before in the trace: what a cache
    that is too small misses again is in missFrac. Of any other read it is estimated: the bytes that nothing touched
    before, times the share of the file that was not in the page cache at first sight (1 - resident / size; 1 if the
    size is 0).

    Returns
    -------
    cold, measured_share : float
        The share, over the reads that were recorded or can be estimated, and the part that these are of all read bytes.
        Both NaN without reads, `cold` also where nothing was measured.
    """
    extended = extended_of(trace, requests, pd.DataFrame())
    return extended["coldFrac"], extended["coldFracMeasuredShare"]
