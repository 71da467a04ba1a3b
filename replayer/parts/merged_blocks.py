# SPDX-License-Identifier: Apache-2.0
"""Turns block requests of several traces into those of one, each trace on devices and of threads of its own.

A device whose number another trace had before gets one that is free, and its name a number behind it; `devices` in the
header says which is which. So the five parameters add up as those of files do, and a run of requests stays one. Whether
the devices are one in a replay is chosen there (``replay --device DEV --source all``).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import numpy as np

from characterize.device_name import device_name
from characterize.distinct_names import numbered
from characterize.layout import RecordKind
from characterize.trace import Header, Trace
from replayer.flexible.block_layer import requests_to_run


def merged_blocks(traces: Sequence[Trace], shifts: Sequence[int]) -> Trace:
    """BLOCK, TASK and GAP records of all; of the header there is only what it says of devices.

    Parameters
    ----------
    traces : sequence of Trace
    shifts : sequence of int
        What to add to the times of each, ns.
    """
    taken = _TakenDevices()
    parts: dict[RecordKind, list[np.ndarray]] = {RecordKind.BLOCK: [], RecordKind.TASK: [], RecordKind.GAP: []}
    for trace, shift in zip(traces, shifts, strict=True):
        blocks = requests_to_run(trace)
        tasks, gaps = (trace.arrays[kind].copy() for kind in (RecordKind.TASK, RecordKind.GAP))
        taken.make_disjoint(trace, blocks, tasks)
        for kind, records, name in (
            (RecordKind.BLOCK, blocks, "start_ns"),
            (RecordKind.TASK, tasks, "time_ns"),
            (RecordKind.GAP, gaps, "start_ns"),
        ):
            records[name] = np.maximum(records[name].astype(np.int64) + shift, 0)
            parts[kind].append(records)
    arrays = {kind: np.concatenate(each) for kind, each in parts.items()}
    blocks = arrays[RecordKind.BLOCK]
    arrays[RecordKind.BLOCK] = blocks[np.argsort(blocks["start_ns"], kind="stable")]
    warnings = [line for trace in dict.fromkeys(traces) for line in trace.warnings]
    return Trace(Header(metadata={"devices": taken.devices}), arrays, warnings=warnings)


class _TakenDevices:
    """Numbers and names that are taken; gives later traces others.

    Attributes
    ----------
    devices : list of dict
        For the header: number, name, and the size where it is known.
    """

    def __init__(self) -> None:
        self.devices: list[dict[str, Any]] = []
        self._numbers: set[int] = set()
        self._names: set[str] = set()
        self._tasks = self._traces = 0

    def make_disjoint(self, trace: Trace, blocks: np.ndarray, tasks: np.ndarray) -> None:
        """Give devices, threads and processes numbers that no trace before has."""
        self._traces += 1
        self._relabel_devices(trace, blocks)
        columns = [records[name] for records in (blocks, tasks) for name in ("thread", "process")]
        columns.append(tasks["parent_process"])
        own = np.unique(np.concatenate(columns))
        if self._traces > 1:
            for column in columns:
                # 0: nobody knows who it was.
                column[:] = np.where(column > 0, self._tasks + 1 + np.searchsorted(own, column), 0)
        self._tasks = max(self._tasks, *(int(column.max(initial=0)) for column in columns))

    def _relabel_devices(self, trace: Trace, blocks: np.ndarray) -> None:
        own, row = np.unique(blocks["device"], return_inverse=True)
        free = (number for number in count(1) if number not in self._numbers and number not in own)
        numbers = [next(free) if device in self._numbers else device for device in own.tolist()]
        listed = {it.get("device"): it for it in trace.header.metadata.get("devices", [])}
        known = [listed.get(device_name(device), {}) for device in own.tolist()]
        called = [it.get("name") or trace.device_name(device) for it, device in zip(known, own.tolist(), strict=True)]
        names = numbered(set(called), self._names, self._traces)
        for number, it, name in zip(numbers, known, called, strict=True):
            size = {"sectors": it["sectors"]} if "sectors" in it else {}
            self.devices.append({"device": device_name(number), "name": names[name], **size})
        blocks["device"] = np.array(numbers, blocks["device"].dtype)[row]
        self._numbers.update(numbers)
        self._names.update(names.values())
