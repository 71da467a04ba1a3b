# SPDX-License-Identifier: Apache-2.0
"""Turns clones and the first calls of threads into processes, each with its table of descriptors and its directory."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from characterize.layout import TASK_DTYPE, RecordKind


@dataclass(frozen=True)
class Call:
    """One system call that has ended; `result` as printed, without its errno."""

    thread: int
    start_ns: int
    duration_ns: int
    name: str
    arguments: str
    result: int
    more: str


@dataclass
class Description:
    """What the kernel calls an open file: descriptors that are copies share it."""

    file: int
    flags: int = 0
    position: int = 0
    guessed: bool = False


@dataclass
class Process:
    """What threads of one process share."""

    number: int
    directory: str = ""
    table: dict[int, Description] = field(default_factory=dict)
    close_on_exec: set[int] = field(default_factory=set)

    def copy(self, number: int) -> Process:
        """A child with tables of its own."""
        return Process(number, self.directory, dict(self.table), set(self.close_on_exec))


class Processes:
    """All processes of a log.

    A child may call something before the clone that made it ends, and the log says so in this order. It is then the
    child of the latest clone that has not ended.

    Attributes
    ----------
    made : set of int
        Threads that clones made and that have not ended.
    """

    def __init__(self) -> None:
        self.made: set[int] = set()
        self._process_of: dict[int, Process] = {}
        self._cloning: list[tuple[int, str]] = []
        self._new_threads: list[tuple[int, int, int]] = []

    def of(self, thread: int, start_ns: int) -> Process:
        """The process of a thread that calls something."""
        if thread not in self._process_of:
            if self._cloning:
                self._child(thread, *self._cloning.pop())
            else:
                self._process_of[thread] = Process(thread)
            self._new_threads.append((thread, self._process_of[thread].number, start_ns))
        return self._process_of[thread]

    def may_be_a_child(self, thread: int) -> bool:
        """Whether a thread has a process already, or a clone that has not ended may have made it."""
        return thread in self._process_of or bool(self._cloning)

    def clone_begins(self, thread: int, arguments: str) -> None:
        """A clone whose end stands further below."""
        self._cloning.append((thread, arguments))

    def clone_ends(self, call: Call) -> None:
        """A clone has returned to the parent."""
        self._cloning = [it for it in self._cloning if it[0] != call.thread]
        if call.result > 0 and call.result not in self._process_of:
            self._child(call.result, call.thread, call.arguments)
            self._new_threads.append((call.result, self._process_of[call.result].number, call.start_ns))

    def ends(self, thread: int) -> None:
        """A thread has ended, and its number may become that of another one."""
        self._process_of.pop(thread, None)
        self.made.discard(thread)
        self._cloning = [it for it in self._cloning if it[0] != thread]

    def new_tasks(self) -> np.ndarray:
        """TASK records of the threads since the last time."""
        tasks = np.zeros(len(self._new_threads), TASK_DTYPE)
        tasks["kind"] = RecordKind.TASK
        for row, (thread, process, start_ns) in zip(tasks, self._new_threads, strict=True):
            row["thread"], row["process"], row["time_ns"] = thread, process, start_ns
        self._new_threads = []
        return tasks

    def _child(self, thread: int, parent: int, arguments: str) -> None:
        self.made.add(thread)
        origin = self._process_of.get(parent) or Process(parent)
        if "CLONE_THREAD" in arguments:
            self._process_of[thread] = origin
            return
        child = origin.copy(thread)
        if "CLONE_FILES" in arguments:
            child.table, child.close_on_exec = origin.table, origin.close_on_exec
        self._process_of[thread] = child
