# SPDX-License-Identifier: Apache-2.0
"""Turns a trace and the recording of its replay into the operations that came too early, by rule.

The rules are those that a replay has to keep: the order within each thread, the edges of ROOT (Weiss et al., SOSP 2013,
section 3), which are files, names and descriptors, the wake-ups of threads by others that were recorded, and the
interval order that it may promise beyond them (docs/decisions/0002). Only what ended before the other one started was
ordered in the recording; what overlapped may come in any order.

Pairs of operations come in pieces. Those whose turn it is are compared with all before them among the last
`NEAR_OPERATIONS`; of earlier ones only the latest end is kept. An operation that began after that has waited for all of
them, so that nothing is missed; the others are counted (`OrderCheck.far`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from characterize.layout import FILEOP_NAME_SHIFT, Fileop, IoFlag, IoOp
from characterize.stream import Stream
from characterize.trace import Trace
from replayer.checking.operation_form import rows_of_ids
from replayer.checking.operation_pairs import END_OF_TIME, HELD_OPERATIONS, WAITING_OPERATIONS, Pairing, Pairs
from replayer.checking.order_sweep import Found, Times, compare, sweep, sweep_ranges

EXAMPLES = 5
"""So many violations of each rule are told in full."""

NEAR_OPERATIONS = 1 << 20
"""More than the engine has in memory of a trace that is longer than twice as many (docs/decisions/0009)."""

RULES = {
    "program_order": "an operation starts after all earlier ones of its thread have ended",
    "file_ranges": "accesses to the same bytes keep their order, where one of them writes (ROOT: file)",
    "names": "uses of a name and what makes, moves or removes it keep their order (ROOT: path)",
    "descriptors": "a process opens a file before it uses it, and closes it after that (ROOT: descriptor)",
    "syncs": "a sync starts after all writes of its file, or of all files, that it flushed (ROOT: file)",
    "wake_ups": "a call starts after the call of another thread has ended that its thread was woken after",
    "interval_order": "an operation starts after all that had ended before it started (docs/decisions/0002)",
}

_ACROSS_THREADS = tuple(rule for rule in RULES if rule not in ("program_order", "interval_order"))

PROMISES = {
    "resource": ("program_order", *_ACROSS_THREADS),
    "recorded": tuple(RULES),
    "thread": ("program_order",),
}
"""Which rules a replay keeps, by its ``--order``."""

_TIMES = ("start_ns", "end_ns", "replay_start_ns", "replay_end_ns")
_END_OF_FILE = np.iinfo(np.int64).max
_MAKES_OR_REMOVES = (Fileop.RENAME, Fileop.UNLINK, Fileop.RMDIR, Fileop.MKDIR)
_NAMES_TARGET = (Fileop.RENAME, Fileop.LINK, Fileop.SYMLINK)
_SYNCS = (Fileop.FSYNC, Fileop.FDATASYNC, Fileop.SYNC_FILE_RANGE, Fileop.MSYNC)
_USES_NAME = (*_MAKES_OR_REMOVES, Fileop.LINK, Fileop.OPEN)


@dataclass
class RuleResult:
    """How one rule was kept.

    Attributes
    ----------
    checked : int
        Operations that had to wait for any other by this rule, of those near before them.
    violations : int
        Those of them that started before one that they had to wait for had ended.
    early_ns_max : int
        By how much at most; 0 = by nothing.
    examples : list of dict
        The first ones in the order of the replay (of a long one: of its first part that has any): ``operation`` and
        ``waits_for`` with ``thread, op, file, offset, bytes, recorded_start_ns``; ``early_ns``.
    """

    checked: int = 0
    violations: int = 0
    early_ns_max: int = 0
    examples: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class OrderCheck:
    """How a replay kept the order of its trace.

    Attributes
    ----------
    operations, expected, compared : int
        In the trace; of these the engine repeats by its rules; of these were found in the recording and checked.
    ambiguous : int
        Found as well, but not checked: opens and closes among like ones of which the replay skipped some, so that it is
        not known which of them it did.
    added : int
        Data operations of the replay that are none of the trace.
    shuffled_threads : int
        Threads in which the operations came in another order, or are not those of the trace.
    rules : dict of str to RuleResult
        By the names of `RULES`. Without those across threads where the trace has no times.
    promised : tuple of str
        Rules that the replay had to keep (`PROMISES`).
    far : int
        Operations that began before the end of one more than `NEAR_OPERATIONS` before them in the trace, which had
        ended before them there: against the interval order, and not looked at by any other rule.
    """

    operations: int
    expected: int
    compared: int
    ambiguous: int
    added: int
    shuffled_threads: int
    rules: dict[str, RuleResult]
    promised: tuple[str, ...] = tuple(RULES)
    far: int = 0

    @property
    def found(self) -> int:
        """Operations of the trace that the replay did, checked or not."""
        return self.compared + self.ambiguous

    @property
    def violations(self) -> int:
        """Sum over the promised rules; an operation counts once in each that it violates."""
        return sum(result.violations for name, result in self.rules.items() if name in self.promised)

    def as_document(self) -> dict[str, Any]:
        """For JSON."""
        rules = {name: {"meaning": RULES[name], **vars(result)} for name, result in self.rules.items()}
        return {**vars(self), "violations": self.violations, "rules": rules}


def check_order(
    trace: Stream,
    recording: Stream,
    order: str = "recorded",
    *,
    near_operations: int = NEAR_OPERATIONS,
    waiting_operations: int = WAITING_OPERATIONS,
    held_operations: int = HELD_OPERATIONS,
) -> OrderCheck:
    """Check the order of a replay.

    Parameters
    ----------
    trace : Stream
        What was replayed, once.
    recording : Stream
        Of the replay, as from `replayer.checking.replay_recording.replay_part`.
    order : {"resource", "recorded", "thread"}
        That the replay was to keep.
    near_operations, waiting_operations, held_operations : int
        Limits of what is in memory: see `NEAR_OPERATIONS` and `replayer.checking.operation_pairs.Pairing`.

    Returns
    -------
    OrderCheck
        Of a synthetic trace, whose times are only an order within each thread, only that order.
    """
    pairing = Pairing(trace, recording, waiting_operations, held_operations)
    checked = _Checked(trace.facts, near_operations)
    for pairs in pairing:
        checked.add(pairs)
    return OrderCheck(
        operations=pairing.operations,
        expected=pairing.expected,
        compared=pairing.compared,
        ambiguous=pairing.ambiguous,
        added=pairing.added,
        shuffled_threads=pairing.shuffled_threads,
        rules={name: checked.results[name] for name in RULES if name in checked.results},
        promised=PROMISES[order],
        far=checked.far,
    )


class _Checked:
    """Operations that were paired, and what their order is like.

    Attributes
    ----------
    results : dict of str to RuleResult
    far : int
        See `OrderCheck`.
    """

    def __init__(self, facts: Trace, near_operations: int) -> None:
        self._facts, self._near = facts, near_operations
        self._names = dict(facts.paths)  # of files, when the first operation at hand started
        self._operations: list[pd.DataFrame] = []
        self._enough = 2 * near_operations  # to check them
        self._latest_end_ns: int | None = None  # of the replay of operations that are no longer at hand
        self.results = {name: RuleResult() for name in RULES if name == "program_order" or not facts.untimed}
        self.far = 0

    def add(self, pairs: Pairs) -> None:
        """Take pairs in; check when there are enough."""
        self._operations.append(pairs.operations.assign(counted=False))
        if pairs.settled_ns == END_OF_TIME or sum(map(len, self._operations)) >= self._enough:
            self._check(pd.concat(self._operations, ignore_index=True), pairs.settled_ns)
            # What waits for an operation that may yet be found stays, and is not to be looked at with every piece.
            self._enough = max(2 * self._near, len(self._operations[0]) + self._near)

    def _check(self, operations: pd.DataFrame, settled_ns: int) -> None:
        times = Times(*(operations[name].to_numpy() for name in _TIMES))
        counted = operations["counted"].to_numpy()
        # What started before or with the first operation that is missing has all that it had to wait for before it.
        due = ~counted & (times.recorded_start <= settled_ns)
        if self._latest_end_ns is not None:
            self.far += int((due & (times.replay_start < self._latest_end_ns)).sum())
        for name, found in _found(times, operations, self._facts, self._names).items():
            self._count(self.results[name], Found(found.checked & due, np.where(due, found.blamed, -1)), operations)
        self._operations = [self._near_of(operations.assign(counted=counted | due), times, settled_ns)]

    def _count(self, result: RuleResult, found: Found, operations: pd.DataFrame) -> None:
        """Add to a result what was found of the operations whose turn it is."""
        early = np.flatnonzero(found.blamed >= 0)
        start, end = (operations[name].to_numpy() for name in ("replay_start_ns", "replay_end_ns"))
        early_ns = end[found.blamed[early]] - start[early]
        result.checked += int(found.checked.sum())
        result.violations += len(early)
        result.early_ns_max = max(result.early_ns_max, int(early_ns.max(initial=0)))
        for place in np.argsort(start[early], kind="stable")[: EXAMPLES - len(result.examples)]:
            result.examples.append(
                {
                    "operation": _told(operations, int(early[place]), self._facts),
                    "waits_for": _told(operations, int(found.blamed[early[place]]), self._facts),
                    "early_ns": int(early_ns[place]),
                }
            )

    def _near_of(self, operations: pd.DataFrame, times: Times, settled_ns: int) -> pd.DataFrame:
        """What may still be compared; the rest was over when recorded before anything starts that is yet to count."""
        if len(operations) <= self._near:
            return operations
        counted, start = operations["counted"].to_numpy(), times.recorded_start
        # Those that are yet to come start no sooner than the first one that is missing.
        next_start = int(start[~counted].min(initial=settled_ns))
        near = np.partition(start, len(start) - self._near)[len(start) - self._near]
        gone = counted & (start < near) & (times.recorded_end < next_start)
        if gone.any():
            latest = int(times.replay_end[gone].max())
            self._latest_end_ns = max(latest, self._latest_end_ns or latest)
            self._rename(operations[gone & ~operations["data"] & (operations["op"] == Fileop.RENAME)])
        return operations[~gone]

    def _rename(self, renames: pd.DataFrame) -> None:
        """Files have the names that operations gave them which are no longer at hand."""
        in_order = renames.sort_values("end_ns", kind="stable")
        for file, name in zip(in_order["file"].tolist(), in_order["argument"].tolist(), strict=True):
            if name in self._facts.paths:
                self._names[file] = self._facts.paths[name]


def _found(times: Times, operations: pd.DataFrame, facts: Trace, names: Mapping[int, str]) -> dict[str, Found]:
    """What each rule says of operations; ``names`` of files before the first of them."""
    everything = np.ones(len(operations), bool)
    found = {"program_order": sweep(times, operations["thread"].to_numpy(), everything, everything)}
    if not facts.untimed:
        found["file_ranges"] = _file_ranges(times, operations)
        found["names"] = _names(times, operations, facts, names)
        found["descriptors"] = _descriptors(times, operations)
        found["syncs"] = _syncs(times, operations)
        found["wake_ups"] = compare(times, rows_of_ids(*(operations[name].to_numpy() for name in ("cause", "id"))))
        found["interval_order"] = sweep(times, np.zeros(len(operations), np.int64), everything, everything)
    return found


def _told(operations: pd.DataFrame, row: int, facts: Trace) -> dict[str, Any]:
    operation = operations.iloc[row]
    kinds = IoOp if operation["data"] else Fileop
    file = int(operation["file"])
    return {
        "thread": int(operation["thread"]),
        "op": kinds(int(operation["op"])).name.lower(),
        "file": facts.paths.get(file, f"file {file}"),
        "offset": int(operation["argument"]),
        "bytes": int(operation["length"]),
        "recorded_start_ns": int(operation["start_ns"]),
    }


def _file_ranges(times: Times, operations: pd.DataFrame) -> Found:
    """Accesses to overlapping ranges; what changes the size of a file writes everything from there on."""
    data, op, low = (operations[name].to_numpy() for name in ("data", "op", "argument"))
    length = np.where(data, np.maximum(operations["result"].to_numpy(), 0), operations["length"].to_numpy())
    truncating = ~data & (op == Fileop.OPEN) & ((operations["flags"].to_numpy() & IoFlag.TRUNCATED) != 0)
    resizing = truncating | (~data & (op == Fileop.TRUNCATE))
    low = np.where(truncating, 0, low)
    high = np.where(resizing, _END_OF_FILE, low + np.minimum(length, _END_OF_FILE - np.maximum(low, 0)))
    write = resizing | (data & (op == IoOp.WRITE)) | (~data & (op == Fileop.FALLOCATE))
    rows = np.flatnonzero((write | data) & (low >= 0) & (high > low))
    file = operations["file"].to_numpy()
    # Most files are only read: no order to check.
    rows = rows[np.isin(file[rows], file[rows][write[rows]])]
    found = sweep_ranges(times[rows], file[rows], low[rows], high[rows], write[rows])
    return _of_all(found, rows, len(operations))


def _names(times: Times, operations: pd.DataFrame, facts: Trace, names: Mapping[int, str]) -> Found:
    """Uses of names: the one that the file had then, or that is said, the one that is made, and their directories."""
    uses = _name_uses(operations, facts, names)
    row, changes = uses["row"].to_numpy(), uses["changes"].to_numpy()
    group, everything = pd.factorize(uses["name"])[0], np.ones(len(uses), bool)
    of_uses = times[row]
    found = [
        _of_all(sweep(of_uses, group, before, after), row, len(operations))
        for before, after in ((changes, everything), (everything, changes))
    ]
    return _either(*found)


def _name_uses(operations: pd.DataFrame, facts: Trace, names: Mapping[int, str]) -> pd.DataFrame:
    """``row`` of operations, ``name`` that it uses, and whether it ``changes`` what the name means."""
    ops = operations.loc[~operations["data"], ["op", "file", "argument", "length", "flags", "start_ns", "end_ns"]]
    ops = ops[np.isin(ops["op"], _USES_NAME + _NAMES_TARGET)].rename_axis("row").reset_index()
    target, kind = _paths(ops["argument"], facts.paths), ops["op"].to_numpy()
    renamed = ops.assign(name=target)[kind == Fileop.RENAME].sort_values("end_ns", kind="stable")
    now = pd.merge_asof(
        ops.sort_values("start_ns", kind="stable").drop(columns="end_ns"),
        renamed[["end_ns", "file", "name"]],
        left_on="start_ns",
        right_on="end_ns",
        by="file",
    ).set_index("row")["name"]
    source = now.reindex(ops["row"]).reset_index(drop=True).astype(object).fillna(_paths(ops["file"], names))
    by_which = np.isin(kind, (Fileop.RENAME, Fileop.UNLINK))
    said = np.where(by_which, ops["length"].to_numpy() >> FILEOP_NAME_SHIFT, 0)
    source = _paths(pd.Series(said), facts.paths).fillna(source)
    made = (kind == Fileop.OPEN) & ((ops["flags"].to_numpy() & IoFlag.CREATED) != 0)
    sources = pd.DataFrame({"row": ops["row"], "name": source, "changes": made | np.isin(kind, _MAKES_OR_REMOVES)})
    targets = pd.DataFrame({"row": ops["row"], "name": target, "changes": True})
    uses = pd.concat([sources[np.isin(kind, _USES_NAME)], targets[np.isin(kind, _NAMES_TARGET)]], ignore_index=True)
    uses = uses[uses["name"].fillna("") != ""]
    directories = pd.Series([name.rpartition("/")[0] for name in uses["name"]], uses.index, object)
    inside = uses.assign(name=directories, changes=False)
    return pd.concat([uses, inside[inside["name"] != ""]], ignore_index=True)


def _paths(numbers: pd.Series, paths: Mapping[int, str]) -> pd.Series:
    """The path of each number, NaN where it has none; as objects, since pandas' strings refuse what is not UTF-8."""
    return pd.Series([paths.get(number, np.nan) for number in numbers.tolist()], numbers.index, object)


def _descriptors(times: Times, operations: pd.DataFrame) -> Found:
    """Opens before uses before closes of a file by a process: records do not name the descriptor, so of all of them."""
    data, op, file = (operations[name].to_numpy() for name in ("data", "op", "file"))
    opens, closes = ~data & (op == Fileop.OPEN), ~data & (op == Fileop.CLOSE)
    by_name = ~data & np.isin(op, (Fileop.RENAME, Fileop.UNLINK, Fileop.RMDIR, Fileop.MKDIR, *_NAMES_TARGET))
    group = operations.groupby(["process", "file"], sort=False).ngroup().to_numpy()
    # A sync of the whole file system is made on the image's directory, not on the file that it names.
    known = (file != 0) & ~by_name & ~(~data & (op == Fileop.SYNCFS))
    uses = known & ~opens & ~closes
    return _either(
        sweep(times, group, known & opens, uses | (known & closes)), sweep(times, group, uses, known & closes)
    )


def _syncs(times: Times, operations: pd.DataFrame) -> Found:
    """Writes of a file before what flushes it; before what flushes everything, those of all files."""
    data, op, file = (operations[name].to_numpy() for name in ("data", "op", "file"))
    writes = (data & (op == IoOp.WRITE)) | (~data & np.isin(op, (Fileop.TRUNCATE, Fileop.FALLOCATE)))
    everything = np.zeros(len(operations), np.int64)
    return _either(
        sweep(times, file, writes, ~data & np.isin(op, _SYNCS)),
        sweep(times, everything, writes, ~data & (op == Fileop.SYNCFS)),
    )


def _of_all(found: Found, rows: np.ndarray, count: int) -> Found:
    """What was found of some rows, as of all; rows may repeat."""
    checked, blamed = np.zeros(count, bool), np.full(count, -1, np.int64)
    checked[rows[found.checked]] = True
    early = found.blamed >= 0
    blamed[rows[early]] = rows[found.blamed[early]]
    return Found(checked, blamed)


def _either(one: Found, other: Found) -> Found:
    return Found(one.checked | other.checked, np.where(one.blamed >= 0, one.blamed, other.blamed))
