# SPDX-License-Identifier: Apache-2.0
"""Turns columns of numbers, one block request each, into BLOCK records, and says which numbers cannot be."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from characterize.formats.lines import Draft
from characterize.layout import BLOCK_DTYPE, NOT_MEASURED_U64, BlockForm, BlockOp, RecordKind
from characterize.requests import SECTOR_BYTES

BYTES_MAX = 2**32 - 1
SECTOR_SHIFT = SECTOR_BYTES.bit_length() - 1
READ_OR_WRITE: Mapping[str, BlockOp] = {"R": BlockOp.READ, "W": BlockOp.WRITE}


def block_draft(
    *,
    start_ns: np.ndarray,
    device: np.ndarray,
    offset: np.ndarray,
    size: np.ndarray,
    op: np.ndarray,
    duration_ns: np.ndarray | None = None,
    sector_bytes: int = 1,
) -> Draft:
    """BLOCK records of requests.

    Parameters
    ----------
    start_ns, duration_ns : ndarray of int64
        As `Draft.set_times` takes them.
    device : ndarray of int64
        Number of the device in the trace.
    offset : ndarray of int64
        In units of `sector_bytes`.
    size : ndarray of int64
        In bytes.
    op : ndarray of int64
        Of `BlockOp`.
    sector_bytes : int

    Returns
    -------
    Draft
        A record for each row, and which rows have numbers that cannot be.
    """
    draft = Draft(np.zeros(len(start_ns), BLOCK_DTYPE))
    fits = (offset >= 0) & (offset < 2**63 // sector_bytes)
    offset_bytes = np.where(fits, offset, 0) * sector_bytes
    draft.set_times(start_ns, duration_ns)
    draft.require((device >= 0) & (device < 2**32), "a device number of 32 bits")
    draft.require(fits, "an offset below 2^63 bytes")
    draft.require(offset_bytes & (SECTOR_BYTES - 1) == 0, f"an offset that is a multiple of {SECTOR_BYTES} bytes")
    draft.require((size >= 0) & (size <= BYTES_MAX), f"a size of at most {BYTES_MAX} bytes")
    block = draft.records
    block["kind"], block["form"] = RecordKind.BLOCK, BlockForm.REQUEST
    block["device"], block["op"] = device, op
    block["sector"], block["bytes"] = offset_bytes >> SECTOR_SHIFT, size
    block["queued_ns"] = NOT_MEASURED_U64
    return draft
