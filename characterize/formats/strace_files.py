# SPDX-License-Identifier: Apache-2.0
"""Turns system calls in the order of their ends into operations on files: which file a descriptor is, and where in it.

Descriptors are followed through open, dup, fcntl, fork, threads, exec and close, positions through lseek; with ``-y``
the path that strace prints beside a descriptor names those from before the log. Sizes are what stat and reads tell.
"""

from __future__ import annotations

import errno
import posixpath
import re
from collections import Counter

import numpy as np

from characterize.formats.file_numbers import FileNumbers
from characterize.formats.file_operations import FILEOP_BASE, divided, operations_draft
from characterize.formats.reading import Chunk, Reading
from characterize.formats.strace_arguments import (
    NUMBER_MAX,
    Named,
    descriptor_of,
    flags_of,
    is_file,
    number_of,
    numbers_behind,
    path_in,
    paths_in,
    vector_bytes,
)
from characterize.formats.strace_calls import (
    ADVICE,
    APPEND,
    CLONES,
    FALLOCATE_MODES,
    HIGH_HALF,
    INFERRED,
    MOVES,
    NAMES,
    OPENS,
    RANGES,
    READ,
    RENAME_FLAGS,
    SETTABLE,
    SIZES_BY_PATH,
    SYNC_RANGE_FLAGS,
    SYNCS,
    WRITE,
    Way,
    io_flags,
    size_after_fallocate,
)
from characterize.formats.strace_paths import Paths
from characterize.formats.strace_processes import Call, Description, Process, Processes
from characterize.layout import TRACE_FIRST_NAME_ID, FileFlag, Fileop, FileType, IoFlag, RecordKind, Source

_SIZE = re.compile(r"\bstx?_size=(\d+)")


class OpenFiles:
    """The state of all processes of a log, and the operations since the last chunk.

    Attributes
    ----------
    left_out : Counter of str
        What a log cannot say, by kind.
    """

    def __init__(self, reading: Reading):
        self.left_out: Counter[str] = Counter()
        self._numbers = FileNumbers(reading.file_sizes, measure=False)
        self._paths = Paths()
        self._size: dict[int, int] = {}
        self._written: set[int] = set()
        self.processes = Processes()
        self._last_file, self._last_name = 0, TRACE_FIRST_NAME_ID
        self._rows: list[tuple[int, ...]] = []

    def chunk(self) -> Chunk:
        """The operations and the new files and threads since the last chunk."""
        rows = np.array(self._rows, np.int64).reshape(-1, 10).T
        names = ("start_ns", "duration_ns", "op", "file", "offset", "size", "result")
        draft = operations_draft(**dict(zip(names, rows[:7], strict=True)))
        draft.records["thread"], draft.records["process"], draft.records["flags"] = rows[7:]
        draft.records["source"] = Source.SYSCALL
        self._rows = []
        return self._numbers.chunk({RecordKind.TASK: self.processes.new_tasks(), **divided(draft.records)})

    def run(self, call: Call) -> None:
        """Take the effects of one call."""
        process = self.processes.of(call.thread, call.start_ns)
        name = call.name
        if name in MOVES:
            self._move(call, process, MOVES[name])
        elif name in OPENS:
            self._open(call, process)
        elif name in CLONES:
            self.processes.clone_ends(call)
        elif name in NAMES:
            self._name(call, process)
        elif name in SYNCS or name in RANGES or name in ("ftruncate", "fallocate", "truncate"):
            self._on_file(call, process)
        elif name in ("sendfile", "copy_file_range"):
            self._copy(call, process)
        elif name == "sync":
            self._add(call, process, FILEOP_BASE + Fileop.SYNCFS, 0)
        elif name in ("io_submit", "io_uring_enter", "splice"):
            self.left_out[f"{name}_calls"] += call.result > 0
        else:
            self._bookkeeping(call, process)

    def _add(self, call: Call, process: Process, op: int, file: int, **numbers: int) -> None:
        """An operation: ``offset``, ``size``, ``result`` and ``flags``, each 0 unless given."""
        offset, size, result, flags = (numbers.get(name, 0) for name in ("offset", "size", "result", "flags"))
        self._keep(call, process, (op, file, offset, size, result, flags))

    def _keep(self, call: Call, process: Process, what: tuple[int, int, int, int, int, int]) -> None:
        op, file, offset, size, result, flags = what
        if max(offset, size, -offset, -size) > NUMBER_MAX:
            raise ValueError("a number that no call can have been given")
        self._rows.append(
            (call.start_ns, call.duration_ns, op, file, offset, size, result, call.thread, process.number, flags)
        )

    def _file(self, path: str, *, kind: FileType | None = None, created: bool = False) -> int:
        """Number of the file of a path; a new one if there is none yet."""
        file = self._paths.file(path)
        if file is None:
            file = self._new_file(path, kind=kind, created=created)
            self._paths.put(path, file)
        return file

    def _new_file(self, path: str, *, kind: FileType | None = None, created: bool = True) -> int:
        self._last_file += 1
        number = self._last_file
        flags = FileFlag.CREATED if created else FileFlag(0)
        self._numbers.add(number, path, kind=kind, flags=int(flags))
        self._size[number] = 0
        return number

    def _resolved(self, process: Process, named: Named) -> str:
        """A path from the root; empty, and counted, where it begins in a directory that the log has not seen opened."""
        if not (path := self._place(process, named)):
            self.left_out["paths_in_unknown_directories"] += 1
        return path

    def _place(self, process: Process, named: Named) -> str:
        directory = named.directory
        if not directory and named.descriptor >= 0 and not named.path.startswith("/"):
            if named.descriptor not in process.table:
                return ""
            directory = self._numbers.paths[process.table[named.descriptor].file]
        # ".." behind a symbolic link is another place than the name says; a log does not tell.
        return posixpath.normpath(posixpath.join(directory or process.directory or ".", named.path))

    def _of(self, call: Call, process: Process, text: str = "") -> Description | None:
        """The open file of a call's first descriptor; None of what is no file."""
        number, path = descriptor_of(text or call.arguments)
        if number in process.table:
            return process.table[number]
        if number < 0 or not path.startswith("/") or not is_file(path):
            return None
        process.table[number] = Description(self._file(path.removesuffix(" (deleted)")), guessed=True)
        return process.table[number]

    def _open(self, call: Call, process: Process) -> None:
        path = self._resolved(process, path_in(call.arguments))
        if call.result < 0:
            if "ENOENT" in call.more:
                self._paths.note_absent(path)
            return
        flags, mode = flags_of(call.name, call.arguments)
        if not is_file(path):
            process.table.pop(call.result, None)
            return
        truncates = "O_TRUNC" in flags or call.name == "creat"
        creates = "O_CREAT" in flags or call.name == "creat"
        known = self._paths.file(path) is not None
        made = creates and not known and ("O_EXCL" in flags or self._paths.is_absent(path))
        kind = FileType.DIRECTORY if "O_DIRECTORY" in flags else None
        if "O_TMPFILE" in flags:  # a new file each time; the path is that of its directory
            made, kind = True, None
            file = self._new_file(posixpath.join(path, f"#{call.start_ns}"))
        else:
            file = self._file(path, kind=kind, created=made)
        if truncates:
            self._size[file] = 0
            self._written.add(file)
        own = io_flags(flags)
        description = Description(file, own)
        process.table[call.result] = description
        process.close_on_exec.discard(call.result)
        if "O_CLOEXEC" in flags:
            process.close_on_exec.add(call.result)
        said = own | (IoFlag.CREATED if made else 0) | (IoFlag.TRUNCATED if truncates else 0)
        said |= IoFlag.DIRECTORY if kind == FileType.DIRECTORY else 0
        self._add(call, process, FILEOP_BASE + Fileop.OPEN, file, offset=call.result, size=mode, flags=int(said))

    def _move(self, call: Call, process: Process, way: Way) -> None:
        description = self._of(call, process)
        if description is None:
            return
        behind = numbers_behind(call.arguments, way.numbers)
        asked = vector_bytes(call.arguments) if way.vectored else behind[0]
        flags = description.flags | way.flags | (io_flags(call.arguments.rsplit(", ", 1)[-1]) if way.has_flags else 0)
        if way.positioned and behind[1] >= 0:
            self._moved(call, process, description, (way.op, behind[1], asked, flags))
            return
        flags |= INFERRED if description.guessed else 0
        description.position = self._moved(call, process, description, (way.op, description.position, asked, flags))

    def _moved(self, call: Call, process: Process, description: Description, what: tuple[int, int, int, int]) -> int:
        """One data operation (operation, offset, bytes asked, flags) on one file; where it ended."""
        (op, offset, asked, flags), file, done = what, description.file, max(call.result, 0)
        size = self._size[file]
        if op == WRITE and flags & APPEND:
            offset = size
        end = offset + done
        if done and op == WRITE:
            self._written.add(file)
        if done and end > size:
            if op == WRITE:
                self._size[file] = end
            else:
                self._learn_size(file, end)
        self._keep(call, process, (op, file, offset, asked, call.result if call.result >= 0 else _errno(call), flags))
        return end

    def _learn_size(self, file: int, size: int) -> None:
        """A file is at least so large; if nothing wrote to it, it was from the begin."""
        self._size[file] = max(size, self._size[file])
        self._numbers.sizes[file] = max(size, self._numbers.sizes[file])

    def _copy(self, call: Call, process: Process) -> None:
        """What was moved is what was asked for: cp asks for 8 EiB, to get all that there is, and a replay must not."""
        parts = call.arguments.split(", ")
        source_first = call.name == "copy_file_range"
        sides = ((0, 1, READ), (2, 3, WRITE)) if source_first else ((1, 2, READ), (0, None, WRITE))
        for side, at, op in sides:
            description = self._of(call, process, parts[side])
            if description is None or call.result < 0:
                continue
            given = re.match(r"\[(\d+)", parts[at]) if at is not None else None
            offset = number_of(given[1]) if given else description.position
            end = self._moved(call, process, description, (op, offset, call.result, description.flags))
            if given is None:
                description.position = end

    def _on_file(self, call: Call, process: Process) -> None:
        result = call.result if call.result >= 0 else _errno(call)
        if call.name == "truncate":
            file = self._file(self._resolved(process, path_in(call.arguments)))
        else:
            description = self._of(call, process)
            if description is None:
                return
            file = description.file
        if call.name in SYNCS:
            self._add(call, process, FILEOP_BASE + SYNCS[call.name], file, result=result)
        elif call.name.endswith("truncate"):
            size = numbers_behind(call.arguments, 1)[0]
            if result == 0:
                self._size[file] = size
                self._written.add(file)
            self._add(call, process, FILEOP_BASE + Fileop.TRUNCATE, file, offset=size, result=result)
        else:
            self._range(call, process, file, result)

    def _range(self, call: Call, process: Process, file: int, result: int) -> None:
        # From the end: a path that -y prints may have a comma.
        parts = call.arguments.rsplit(", ", 3)
        if call.name == "fallocate":
            offset, length = number_of(parts[2]), number_of(parts[3])
            flags = sum(bit for word, bit in FALLOCATE_MODES.items() if word in parts[1])
            op = Fileop.FALLOCATE
            if result == 0:
                self._size[file] = size_after_fallocate(self._size[file], flags, offset, length)
        else:
            offset, length, op = number_of(parts[1]), number_of(parts[2]), RANGES[call.name]
            words = ADVICE if op == Fileop.FADVISE else SYNC_RANGE_FLAGS
            flags = sum(bit for word, bit in words.items() if re.search(rf"_{word}\b", parts[3]))
        place = {"offset": offset, "size": length, "flags": flags << HIGH_HALF}
        self._add(call, process, FILEOP_BASE + op, file, result=result, **place)

    def _name(self, call: Call, process: Process) -> None:
        if call.result < 0:
            return
        op = Fileop.RMDIR if "AT_REMOVEDIR" in call.arguments else NAMES[call.name]
        paths = [self._resolved(process, named) for named in paths_in(call.arguments)]
        if not paths or not all(paths) or not is_file(paths[-1]):
            return
        if op in (Fileop.RENAME, Fileop.LINK, Fileop.SYMLINK):
            self._last_name += 1
            self._numbers.add(self._last_name, paths[-1], flags=int(FileFlag.NEW_NAME))
            file = 0 if op == Fileop.SYMLINK else self._file(paths[0])
            flags = sum(bit for word, bit in RENAME_FLAGS.items() if word in call.arguments.rsplit('"', 1)[-1])
            exchange = bool(flags & RENAME_FLAGS["RENAME_EXCHANGE"])
            if exchange:
                self._file(paths[-1])
            if op == Fileop.RENAME:
                self._paths.rename(paths[0], paths[-1], exchange=exchange)
            elif op == Fileop.LINK:
                self._paths.put(paths[-1], file)
            self._add(call, process, FILEOP_BASE + op, file, offset=self._last_name, size=flags)
            return
        is_directory = op in (Fileop.MKDIR, Fileop.RMDIR)
        kind = FileType.DIRECTORY if is_directory else None
        file = self._file(paths[0], kind=kind, created=op == Fileop.MKDIR)
        mode = int(call.arguments.rsplit(", ", 1)[1], 8) if op == Fileop.MKDIR else 0
        flags = int(IoFlag.DIRECTORY) if is_directory else 0
        self._add(call, process, FILEOP_BASE + op, file, size=mode, flags=flags)
        if op != Fileop.MKDIR:
            self._paths.remove(paths[0])

    def _bookkeeping(self, call: Call, process: Process) -> None:
        """Calls that change tables, positions and what is known, and that are no operations (but for close)."""
        name, table = call.name, process.table
        number, _ = descriptor_of(call.arguments)
        if name == "execve" and call.result == 0:
            for closed in process.close_on_exec:
                table.pop(closed, None)
            process.close_on_exec = set()
        elif name == "chdir" and call.result == 0:
            process.directory = self._resolved(process, path_in(call.arguments))
        elif name == "fchdir" and call.result == 0 and number in table:
            process.directory = self._numbers.paths[table[number].file]
        elif name == "mmap":
            parts = call.arguments.split(", ")
            shared = self._of(call, process, parts[4]) if len(parts) > 5 and not parts[4].startswith("-1") else None
            self.left_out["mappings_of_files"] += shared is not None and "PROT_EXEC" not in parts[2]
        elif name in (*SIZES_BY_PATH, "fstat", "lseek"):
            self._learn(call, process)
        elif name == "close_range" and call.result == 0:
            first, last = numbers_behind(call.arguments, 3)[:2]
            within = [it for it in table if first <= it <= (last if last >= 0 else it)]
            if "CLOSE_RANGE_CLOEXEC" in call.arguments:
                process.close_on_exec.update(within)
                return
            for closed in within:
                del table[closed]
        elif name == "close":
            description = table.pop(number, None)
            if description is not None:
                self._add(call, process, FILEOP_BASE + Fileop.CLOSE, description.file, offset=number)
        elif call.result >= 0 and (name.startswith("dup") or "F_DUPFD" in call.arguments):
            copied = self._of(call, process)
            if copied is not None:
                table[call.result] = copied
            else:
                table.pop(call.result, None)
            process.close_on_exec.discard(call.result)
            if "CLOEXEC" in call.arguments:
                process.close_on_exec.add(call.result)
        elif name == "fcntl" and "F_SETFL" in call.arguments and call.result == 0:
            if changed := self._of(call, process):
                flags = io_flags(call.arguments.rsplit(", ", 1)[-1])
                changed.flags = (changed.flags & ~SETTABLE) | (flags & SETTABLE)
        elif name == "fcntl" and "F_SETFD" in call.arguments:
            (process.close_on_exec.add if "FD_CLOEXEC" in call.arguments else process.close_on_exec.discard)(number)

    def _learn(self, call: Call, process: Process) -> None:
        if call.result < 0:
            return
        named = path_in(call.arguments) if call.name in SIZES_BY_PATH else Named("")
        if named.path:
            file = self._paths.file(self._place(process, named))
        else:
            description = self._of(call, process) if re.match(r"\d", call.arguments) else None
            file = description.file if description else None
            if description and call.name == "lseek":
                description.position, description.guessed = call.result, False
        size = _SIZE.search(call.arguments) if "S_IFREG" in call.arguments else None
        told = number_of(size[1]) if size else 0
        # What fallocate made it is no size that it had before.
        if file and file not in self._written and told > self._size[file]:
            self._learn_size(file, told)


def _errno(call: Call) -> int:
    """What the kernel returned to a call that failed: its name stands behind the -1 that strace prints."""
    return -getattr(errno, next(iter(call.more.split()), ""), errno.EIO)
