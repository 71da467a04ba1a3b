# SPDX-License-Identifier: Apache-2.0
"""Turns a long exploration into one that can be interrupted: every finished point is appended to a file at once.

Resuming runs the exploration again from its beginning, with the points of the journal in the place of measurements. It
decides the same, since everything that it decides upon (points, their costs, settings, seed) stands in the journal.
What takes long to decide, which workloads tell most, is not decided again.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from characterize.errors import FlextraceError, remedy_of
from characterize.workload import Workload
from selfscale.exploring.plan import Step
from selfscale.measure import Point
from selfscale.measuring.environment import changed
from selfscale.profiles.profile_shape import check_host, check_machine, check_point

SCHEMA = "flextrace.points/1"


class Journal:
    """The points measured so far, on disk.

    Parameters
    ----------
    path : Path
    settings : mapping
        What the user chose; resuming with other settings is refused.
    machine : mapping
        What was found out at the start (expected cache size, processors); kept from the first run.
    needed : iterable of str
        What a journal that is resumed has to say of the machine.
    host : mapping, optional
        Where it is measured (`selfscale.measuring.environment.host`); resuming on another one is refused.

    Attributes
    ----------
    machine : dict
        The first run's.
    points : list of Point
        Points that were there when the journal was opened.
    """

    def __init__(
        self,
        path: Path,
        settings: Mapping[str, Any],
        machine: Mapping[str, Any],
        *,
        resume: bool,
        needed: Iterable[str] = (),
        host: Mapping[str, Any] | None = None,
    ):
        self.path = path
        self.points: list[Point] = []
        self.machine = dict(machine)
        self._documents: list[dict[str, Any]] = []
        if resume:
            self._read(settings, needed, host or {})
        else:
            first = {"settings": dict(settings), "machine": self.machine, "host": dict(host or {})}
            self._write_line({"schema": SCHEMA, **first}, "w")

    @property
    def measured(self) -> int:
        """Points that it was given, now or before."""
        return len(self._documents) - 1

    @property
    def informative(self) -> list[Workload]:
        """Workloads off the curves that the run chose, as far as they were measured."""
        return [point.workload for point in self.points if point.role == "inform"]

    def _read(self, settings: Mapping[str, Any], needed: Iterable[str], host: Mapping[str, Any]) -> None:
        try:
            lines = self.path.read_bytes().splitlines(keepends=True)
        except FileNotFoundError:
            raise FlextraceError(
                f"there is nothing to resume: {self.path} does not exist; run without --resume", 2
            ) from None
        documents = self._documents
        whole_bytes = 0
        for number, line in enumerate(lines, 1):
            if not line.endswith(b"\n"):
                break  # its writer was killed within it
            try:
                documents.append(json.loads(line))
            except (ValueError, RecursionError) as error:
                if number in {1, len(lines)}:
                    break
                raise self._damaged(f"line {number} is no JSON") from error
            whole_bytes += len(line)
        first = documents[0] if documents and isinstance(documents[0], dict) else {}
        if first.get("schema") != SCHEMA:
            raise FlextraceError(
                f"{self.path} is not a journal of measured points: remove it and run without --resume", 2
            )
        self.machine, self.points = self._content(first, documents[1:], needed)
        if different := _different(first["settings"], settings):
            raise FlextraceError(
                f"cannot resume {self.path} with other settings ({'; '.join(different)}): "
                "give the same ones, or start afresh with --force",
                2,
            )
        was = first.get("host", {})
        if moved := [f"{name} was {was[name]}, is {host[name]}" for name in changed(was, host)]:
            raise FlextraceError(
                f"cannot resume {self.path} on another machine ({'; '.join(moved)}): go on where it was begun, "
                "or start afresh with --force",
                2,
            )
        # What is whole is left alone: its run may still be going on, beside which this one will be refused.
        if whole_bytes < sum(map(len, lines)):
            os.truncate(self.path, whole_bytes)

    def _content(
        self, first: dict[str, Any], points: list[Any], needed: Iterable[str]
    ) -> tuple[dict[str, Any], list[Point]]:
        """What its lines say: of the machine, and the points."""
        try:
            settings, machine = first["settings"], first["machine"]
            if not isinstance(settings, dict):
                raise TypeError("settings is no object")
            check_machine(machine, needed)
            check_host(first.get("host", {}))
            for number, point in enumerate(points, 1):
                check_point(point, f"point {number}")
            return machine, [Point.from_document(point) for point in points]
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
            raise self._damaged(repr(error)) from error

    def _damaged(self, what: str) -> FlextraceError:
        return FlextraceError(
            f"{self.path} is damaged ({what}): remove that line and all behind it, or start afresh with --force", 2
        )

    def _write_line(self, document: dict[str, Any], mode: str = "r+") -> None:
        self._documents.append(document)
        try:
            # Never a new file for a point: where its directory was unmounted, that would lie in another one.
            with self.path.open(mode) as stream:
                stream.seek(0, os.SEEK_END)
                stream.write(json.dumps(document, allow_nan=False) + "\n")
                stream.flush()
                os.fsync(stream.fileno())
        except OSError as error:
            raise FlextraceError(f"cannot write {self.path}: {error.strerror}{remedy_of(error)}") from error

    def wrap(self, measure: Callable[[Step], Point], resumed_s: float = 0.0) -> Callable[[Step], Point]:
        """The same as `measure`, but answered from the journal as long as it has points, and appended to it after.

        Parameters
        ----------
        resumed_s : float
            What was done again before the journal's points are continued; the next point says so.

        Raises
        ------
        FlextraceError
            From the returned function: the exploration asks for something else than the journal holds (it was written
            by another version).
        """
        stored = iter(self.points)

        def step(request: Step) -> Point:
            nonlocal resumed_s
            point = next(stored, None)
            if point is None:
                point = replace(request.label(measure(request)), resumed_s=resumed_s)
                resumed_s = 0.0
                self._write_line(point.as_document())
            elif point.workload != request.workload or (point.role, point.region) != (request.role, request.region):
                raise FlextraceError(
                    f"cannot resume {self.path}: another version of flextrace wrote it; start afresh with --force"
                )
            return point

        return step

    def is_there(self) -> bool:
        """Whether the file still holds what it was given, but for a last point that could not be written."""
        try:
            return len(self.path.read_bytes().splitlines()) >= self.measured
        except OSError:
            return False

    def copy_elsewhere(self) -> Path:
        """Write everything into a new directory for temporary files: the file itself is lost."""
        copy = Path(tempfile.mkdtemp(prefix="flextrace-")) / self.path.name
        try:
            copy.write_text("".join(json.dumps(document, allow_nan=False) + "\n" for document in self._documents))
        except OSError:
            shutil.rmtree(copy.parent, ignore_errors=True)
            raise
        return copy

    def remove(self) -> None:
        """Delete the file, when the profile holds everything."""
        self.path.unlink(missing_ok=True)


def _different(old: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What differs, of settings that are documents themselves only the parts that do."""
    found = []
    for name, value in now.items():
        was = old.get(name)
        if isinstance(value, Mapping) and isinstance(was, Mapping):
            found += _different(was, value)
        elif was != value:
            found.append(f"{name} was {was}, is {value}")
    return found
