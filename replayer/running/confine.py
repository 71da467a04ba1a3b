# SPDX-License-Identifier: Apache-2.0
"""Turns a size into a memory control group that bounds the page cache of what runs in it (design.md section 5).

The thesis saw no way around running times that grow with the memory of the machine (4.5.2). A memory control group is
charged for the page cache that its processes fill, so a benchmark in a small group meets its cache size soon. Pages
that are cached already stay charged to whoever read them first: evict the files before confining (the engine does so).

Version 1 and version 2 of control groups are served, whichever holds the memory controller.
"""

from __future__ import annotations

import errno
import itertools
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from characterize.errors import FlextraceError
from characterize.units import format_bytes, parse_size

PROC = Path("/proc")
LIMIT_BYTES_MIN = 1 << 20
"""Below this not even the shell that joins the group survives."""

ADVICE = (
    "run as root, or in a delegated group (systemd-run --user --scope -p Delegate=yes flextrace ...), "
    "or without --memory"
)

_REMOVE_SECONDS = 10.0
_JOIN = 'echo $$ >"$0/cgroup.procs" || { echo "cannot join the memory group $0" >&2; exit 126; }; exec "$@"'
_serial = itertools.count()


def _own_groups(controller: str) -> tuple[int, list[Path]] | None:
    """Version of control groups with a controller, and the groups of this process from its own to the root.

    None where the controller is not mounted.
    """
    own = {}  # controllers ("" for version 2) -> path below the mount
    # Names in both are of any bytes.
    for line in os.fsdecode((PROC / "self/cgroup").read_bytes()).split("\n")[:-1]:
        _, controllers, path = line.split(":", 2)
        own[controllers] = path
    unified = None
    for line in os.fsdecode((PROC / "self/mountinfo").read_bytes()).split("\n")[:-1]:
        fields, _, tail = line.partition(" - ")
        root, mount = fields.split(" ")[3:5]
        kind, _, options = tail.split(" ")[:3]
        if kind == "cgroup" and controller in options.split(","):
            path = next((path for names, path in own.items() if controller in names.split(",")), "/")
            return 1, _upwards(Path(mount), root, path)
        if kind == "cgroup2" and controller in (Path(mount) / "cgroup.controllers").read_text().split():
            unified = _upwards(Path(mount), root, own.get("", "/"))
    return None if unified is None else (2, unified)


def _upwards(mount: Path, root: str, path: str) -> list[Path]:
    """Directories of a group and of its ancestors; `root` is the group that is mounted at `mount` (a container's)."""
    relative = os.path.relpath(path, root)
    own = mount if relative.startswith("..") else mount / relative
    if not own.is_dir():
        own = mount
    return [own, *(parent for parent in own.parents if parent == mount or mount in parent.parents)]


def current_limit() -> int | None:
    """Bytes of memory that this process may use by its control groups, the smallest along the path to the root.

    Returns
    -------
    int or None
        None where there is no limit, or no memory controller.
    """
    limits = _limits("memory", ("memory.limit_in_bytes",), "memory.max")
    # Version 1 writes "no limit" as the largest page-aligned 63-bit number.
    return min((limit for (limit,) in limits if limit < 1 << 62), default=None)


def processor_limit() -> float | None:
    """Processors that this process may use by its control groups, the fewest along the path to the root.

    Returns
    -------
    float or None
        None where there is no limit, or no controller of processors.
    """
    limits = _limits("cpu", ("cpu.cfs_quota_us", "cpu.cfs_period_us"), "cpu.max")
    # Version 1 writes "no limit" as -1.
    return min((quota_us / period_us for quota_us, period_us in limits if quota_us > 0), default=None)


def _limits(controller: str, names_of_1: tuple[str, ...], name_of_2: str) -> list[list[int]]:
    """What the limit files of this process's groups say: in version 2 that is one file for each group."""
    try:
        version, groups = _own_groups(controller) or (2, [])
    except OSError:
        return []
    limits = []
    for group in groups:
        try:
            words = " ".join((group / name).read_text() for name in (names_of_1 if version == 1 else (name_of_2,)))
        except OSError:
            continue  # the root of version 2 has no limit file
        if "max" not in words:
            limits.append([int(word) for word in words.split()])
    return limits


def parse_limit(text: str) -> int:
    """Bytes of a memory group from text such as ``128M``.

    Raises
    ------
    FlextraceError
        Not a size, or one that no process fits in.
    """
    limit_bytes = parse_size(text)
    check_limit(limit_bytes)
    return limit_bytes


def check_limit(limit_bytes: int) -> None:
    """Refuse a limit that no process fits in.

    Raises
    ------
    FlextraceError
    """
    if limit_bytes < LIMIT_BYTES_MIN:
        raise FlextraceError(
            f"a memory group of {limit_bytes} bytes cannot hold a process: "
            f"give at least {format_bytes(LIMIT_BYTES_MIN)}",
            2,
        )


@contextmanager
def told_behind(error: BaseException | None) -> Iterator[None]:
    """Tell what could not be cleaned up behind the error that ended the work, if one did, and not in its place.

    An interruption stays one, with a note of it.
    """
    try:
        yield
    except FlextraceError as left:
        if error is None:
            raise
        if isinstance(error, FlextraceError):
            raise FlextraceError(f"{error}\n{left}", error.exit_code) from error
        error.add_note(str(left))


class MemoryGroup:
    """A memory control group that exists while its ``with`` block runs.

    Parameters
    ----------
    limit_bytes : int
        Page cache and anonymous memory of everything that runs in the group, bytes. Swap is refused to the group where
        the kernel can (it would make the limit a matter of the swap device).

    Attributes
    ----------
    path : Path
        Directory of the group, valid inside the ``with`` block.

    Raises
    ------
    FlextraceError
        On entering: the limit is absurd, there is no memory controller, or no permission to make a group.
    """

    def __init__(self, limit_bytes: int):
        check_limit(limit_bytes)
        self.limit_bytes = limit_bytes
        self.path = Path()
        self._version = 0
        self._own = Path()

    def __enter__(self) -> Self:
        found = _own_groups("memory")
        if found is None:
            raise FlextraceError(
                "cannot limit memory: no control group file system with the memory controller is mounted; mount one "
                "(mount -t cgroup2 none /sys/fs/cgroup), boot with cgroup_enable=memory, or run without --memory"
            )
        self._version, groups = found
        self._own = groups[0]
        refusals = []
        for parent in self._parents(groups):
            path = parent / f"flextrace-{os.getpid()}-{next(_serial)}"
            try:
                self._make(path)
            except OSError as error:
                refusals.append(f"{path}: {error.strerror}")
                continue
            return self
        raise FlextraceError(
            f"cannot make a memory group of {format_bytes(self.limit_bytes)} ({'; '.join(refusals)}): {ADVICE}"
        )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with told_behind(error):
            self._remove()

    def let_go(self) -> None:
        """Move what runs in the group to that of this process: it is to end by itself, whenever that is.

        What cannot be moved is ended with the group.
        """
        for process in self._processes():
            with suppress(OSError):
                (self._own / "cgroup.procs").write_text(str(process))

    def wrap(self, command: list[str]) -> list[str]:
        """Return a command that joins the group and then becomes `command`, so that all its memory is charged here."""
        return ["/bin/sh", "-c", _JOIN, str(self.path), *command]

    def usage_bytes(self) -> int:
        """Bytes charged to the group now: page cache, anonymous and kernel memory."""
        return int((self.path / ("memory.usage_in_bytes" if self._version == 1 else "memory.current")).read_text())

    def _parents(self, groups: list[Path]) -> Iterator[Path]:
        """Groups in which a child with a memory limit can be made, nearest first.

        In version 2 a group that holds processes cannot hand controllers to children (the root may), so the search goes
        up until the controller is handed down already or can be.
        """
        for group in groups:
            if self._version == 1:
                yield group
                continue
            control = group / "cgroup.subtree_control"
            try:
                if "memory" not in control.read_text().split():
                    control.write_text("+memory")
            except OSError:
                if group != groups[-1]:
                    continue
            yield group

    def _make(self, path: Path) -> None:
        """Make the group, or leave none, also where an interruption comes between making and limiting it."""
        try:
            path.mkdir()
            self.path = path
            self._limit()
        except FileExistsError:
            raise  # it is another one's
        except BaseException:
            with suppress(OSError):
                path.rmdir()
            raise

    def _limit(self) -> None:
        if self._version == 1:
            files = {"memory.limit_in_bytes": self.limit_bytes, "memory.memsw.limit_in_bytes": self.limit_bytes}
        else:
            files = {"memory.max": self.limit_bytes, "memory.swap.max": 0}
        for name, value in files.items():
            if "sw" not in name or (self.path / name).exists():
                (self.path / name).write_text(str(value))

    def _processes(self) -> list[int]:
        """Without those of other PID namespaces, which are 0: a signal to that goes to the sender's own group."""
        processes = map(int, (self.path / "cgroup.procs").read_text().split())
        return [process for process in processes if process]

    def _remove(self) -> None:
        """End what still runs in the group (after an error), give its page cache back, remove it."""
        deadline = time.monotonic() + _REMOVE_SECONDS
        while True:
            try:
                for process in self._processes():
                    os.kill(process, signal.SIGKILL)
            except OSError:
                pass
            # Page cache that stays charged keeps the dead group in kernel memory until it is reclaimed.
            try:
                if self._version == 1:
                    (self.path / "memory.force_empty").write_text("0")
                else:
                    (self.path / "memory.reclaim").write_text(str(self.usage_bytes()))
            except OSError:
                pass  # an older kernel, or pages in use: only later reclaim differs
            try:
                self.path.rmdir()
                return
            except FileNotFoundError:
                return
            except OSError as error:
                if error.errno != errno.EBUSY or time.monotonic() > deadline:
                    raise FlextraceError(
                        f"cannot remove the memory group {self.path}: {error.strerror}; rmdir it later"
                    ) from error
            time.sleep(0.02)
