# SPDX-License-Identifier: Apache-2.0
"""Turns a Trace into fio's I/O logs, version 3, one for each thread, and a job file that runs them.

A line of a log is ``time file action [offset bytes]``. fio's documentation gives no unit of the time; its replay takes
it as microseconds (tests/characterize/formats/test_fio_iolog.py shows it), and takes the time of a line for its delay
only if the line before has a time other than 0, so that the first is 1 here. It knows the actions add, open, close,
read, write, trim, sync and datasync, keeps no order across logs, and lays out no files: they have to be there, under
the names that the replay engine gives them.
"""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from characterize.counting.intervals import overlap_at_starts
from characterize.errors import FlextraceError
from characterize.layout import FileFlag, Fileop, FileType, IoFlag, RecordKind, Source, name_of
from characterize.requests import requests_of, times_measured
from characterize.trace import Trace
from characterize.trace_files.new_file import blamed, new_file

LOG_SUFFIX = ".iolog"
NAME_BYTES_MAX = 255  # fio reads a name into so much
PLAIN_NAME = re.compile(r"[\w./+,@=~-]+")  # blanks part the fields of a log, colons the logs of a job
FIRST_TIME_US = 1

ACTION_OF_FILEOP = {Fileop.FSYNC: "sync", Fileop.FDATASYNC: "datasync"}
DATA_ACTIONS = ("read", "write")
ENGINE_OF_SOURCE = {Source.AIO: "libaio", Source.IO_URING: "io_uring"}  # every other: psync

GLOBAL_OPTIONS = """\
[global]
thread
# as the trace did it: no page is dropped from the cache before, no hint of random or sequential use is given
invalidate=0
fadvise_hint=0
{stall}
"""


@dataclass(frozen=True)
class Exported:
    """What was written, and what could not be.

    Attributes
    ----------
    logs : list of Path
        One for each thread that has operations.
    operations : int
        Data operations and syncs in all logs.
    left_out : dict of str to int
        Operations of the trace that no log can say, by kind.
    changed : dict of str to int
        Operations that are in the logs, but that fio will do in another way.
    created_files : int
        Files in the logs that the application made while it was recorded.
    """

    logs: list[Path]
    operations: int
    left_out: dict[str, int]
    changed: dict[str, int]
    created_files: int


@contextmanager
def written(trace: Trace, job_file: Path, directory: Path, *, force: bool = False) -> Iterator[Exported]:
    """Write ``NAME.fio``, and the logs in the directory ``NAME.iolog`` beside it; if the block fails, all is as before.

    Parameters
    ----------
    trace : Trace
    job_file : Path
        ``fio NAME.fio`` runs it, from any directory.
    directory : Path
        Where fio will find the files of the trace, as the replay engine lays them out.
    force : bool
        Overwrite.

    Raises
    ------
    FlextraceError
        A name that fio cannot read, a file that exists already or cannot be written, or nothing to write.
    """
    image, log_directory = (Path(os.path.abspath(path)) for path in (directory, job_file.with_suffix(LOG_SUFFIX)))
    for path in (image / image_name(0), log_directory):
        refuse_name(path)
    operations, left_out = operations_of(trace)
    if operations.empty:
        raise FlextraceError(
            f"{trace.path or 'the trace'} holds no data operation or sync of an application: there is nothing for fio"
        )
    files = trace.arrays[RecordKind.FILE]
    created = np.intersect1d(files["file"][(files["flags"] & FileFlag.CREATED) != 0], operations["file"])
    stall = "replay_no_stall=1" if trace.untimed else "# replay_no_stall=1: without the recorded times between"
    logs, changed, sections = [], Counter[str](), [GLOBAL_OPTIONS.format(stall=stall)]
    with new_file(job_file, force=force) as job, _new_logs(log_directory, force=force) as unfinished:
        for thread, own in operations.groupby("thread"):
            log = log_directory / f"{thread}{LOG_SUFFIX}"
            with blamed(log), (unfinished / log.name).open("xb") as stream:
                stream.writelines(line.encode("utf-8", "surrogateescape") for line in log_lines(own, image))
            options, differing = job_options(own, times_measured(trace))
            sections.append("\n".join([f"[thread-{thread}]", f"read_iolog={log}", *options]) + "\n")
            changed.update(differing)
            logs.append(log)
        job.write("\n".join(sections).encode("utf-8", "surrogateescape"))
        job.flush()  # a full disk is told before earlier logs go
        yield Exported(logs, len(operations), dict(left_out), dict(changed), len(created))


def image_name(file: int) -> str:
    """Name that the replay engine gives a file (``image_name`` in replayer/engine/image.c)."""
    return f"f{file:08d}"


def refuse_name(path: Path) -> None:
    """Keep names out of logs and job files that fio would read as something else.

    Raises
    ------
    FlextraceError
        The name has a blank, a colon or another character that means something to fio, or is too long for it.
    """
    if not PLAIN_NAME.fullmatch(str(path)):
        raise FlextraceError(
            f"fio cannot read the name '{path}': choose one of letters, digits and any of / . _ - + , @ = ~ only", 2
        )
    if len(os.fsencode(path)) > NAME_BYTES_MAX:
        raise FlextraceError(
            f"fio cannot read names of more than {NAME_BYTES_MAX} bytes, as '{path}': choose a shorter", 2
        )


def operations_of(trace: Trace) -> tuple[pd.DataFrame, Counter[str]]:
    """What a log can say, and the number of all others by kind.

    Returns
    -------
    DataFrame, one row per operation in the order of the starts
        ``start_ns, end_ns, thread, file, action, offset, bytes, flags, source``. ``bytes`` is what was moved: fio asks
        again for the rest of a short read, and takes one of nothing for an error.
    Counter of str
    """
    requests = requests_of(trace)
    left_out: Counter[str] = Counter()
    left_out["data operations that moved nothing, or of mapped programs"] = len(trace.io) - len(requests)
    requests["action"] = np.where(requests["read"], "read", "write")
    fileops = trace.fileops
    said = fileops["op"].isin(list(ACTION_OF_FILEOP)) & (fileops["result"] >= 0)
    left_out.update(name_of(Fileop, op).lower() for op in fileops["op"][~said])
    syncs = fileops[said].reset_index(drop=True)
    syncs["action"] = [ACTION_OF_FILEOP[Fileop(op)] for op in syncs["op"]]
    syncs["end_ns"] = syncs["start_ns"] + syncs["duration_ns"]
    syncs[["offset", "bytes"]] = 0
    numbers = ["start_ns", "end_ns", "thread", "file", "offset", "bytes", "flags", "source"]
    columns = ["action", *numbers]
    operations = pd.concat([requests[columns], syncs[columns]], ignore_index=True).astype(
        dict.fromkeys(numbers, np.int64)
    )
    known = ~operations["file"].isin([0, *_not_files(trace)])
    left_out["operations on a directory or on no known file"] = int((~known).sum())
    operations = operations[known].sort_values("start_ns", kind="stable", ignore_index=True)
    has_data = operations["action"].isin(DATA_ACTIONS).groupby(operations["thread"]).transform("any").astype(bool)
    left_out["syncs of threads that do nothing else, which fio refuses"] = int((~has_data).sum())
    operations = operations[has_data].reset_index(drop=True)
    since_ns = operations["start_ns"] - operations["start_ns"].min()
    # An order is all that an untimed trace has.
    operations["time_us"] = FIRST_TIME_US + (0 if trace.untimed else (since_ns + 500) // 1000)
    return operations, +left_out


def _not_files(trace: Trace) -> list[int]:
    files = trace.arrays[RecordKind.FILE]
    without_data = (files["type"] == FileType.DIRECTORY) | ((files["flags"] & FileFlag.NEW_NAME) != 0)
    return files["file"][without_data].tolist()


def log_lines(operations: pd.DataFrame, directory: Path) -> Iterator[str]:
    """The log of one thread: a file is opened right before its first operation, and closed by fio at the end.

    Parameters
    ----------
    operations : DataFrame
        Of one thread, as from `operations_of`.
    directory : Path
        Absolute: fio puts its option ``directory`` before a name where it is added, but not where it is used.
    """
    yield "fio version 3 iolog\n"
    paths = {file: str(directory / image_name(file)) for file in operations["file"].unique()}
    yield from (f"{FIRST_TIME_US} {path} add\n" for path in paths.values())
    opened = set()
    columns = ("time_us", "file", "action", "offset", "bytes")
    for time_us, file, action, offset, size in zip(*(operations[name].tolist() for name in columns), strict=True):
        if file not in opened:
            opened.add(file)
            yield f"{time_us} {paths[file]} open\n"
        yield f"{time_us} {paths[file]} {action} {offset} {size}\n"


def job_options(operations: pd.DataFrame, measured: bool) -> tuple[list[str], Counter[str]]:
    """How one thread did its operations, which fio can say of a whole job only.

    Returns
    -------
    list of str
        Lines of the job file.
    Counter of str
        Operations of the thread that were done in another way, by kind.
    """
    changed: Counter[str] = Counter()
    data = operations[operations["action"].isin(DATA_ACTIONS)]
    writes = data[data["action"] == "write"]

    def all_have(rows: pd.DataFrame, flag: IoFlag, what: str) -> bool:
        having = int(((rows["flags"] & int(flag)) != 0).sum())
        if 0 < having < len(rows):
            changed[what] += having
        return 0 < having == len(rows)

    options = []
    source = data["source"].mode()
    engine = ENGINE_OF_SOURCE.get(Source(int(source[0])), "psync") if len(source) else "psync"
    options.append(f"ioengine={engine}")
    if engine != "psync" and measured:
        depth = overlap_at_starts(data["start_ns"].to_numpy(), data["end_ns"].to_numpy()).max()
        options.append(f"iodepth={depth}")
    if all_have(
        data, IoFlag.DIRECT, "direct operations of threads that do others as well: done through the page cache"
    ):
        options.append("direct=1")
    if all_have(writes, IoFlag.SYNC, "O_SYNC writes of threads that do others as well: done without"):
        options.append("sync=sync")
    elif all_have(writes, IoFlag.DSYNC, "O_DSYNC writes of threads that do others as well: done without"):
        options.append("sync=dsync")
    return options, changed


@contextmanager
def _new_logs(directory: Path, *, force: bool) -> Iterator[Path]:
    """A place for logs that take that of an earlier export's when the block ends; if it fails, those stay."""
    if directory.exists() and not force:
        raise FlextraceError(f"{directory} exists already: choose another name or give --force", 2)
    if directory.exists() and not directory.is_dir():
        raise FlextraceError(f"cannot write logs to {directory}: it is no directory; choose another name", 2)
    unfinished = directory.with_name(f".{directory.name}.{os.getpid()}.unfinished")
    try:
        with blamed(directory):
            unfinished.mkdir()
        yield unfinished
        with blamed(directory):
            directory.mkdir(exist_ok=True)
            for log in directory.glob(f"*{LOG_SUFFIX}"):
                log.unlink()
            for log in unfinished.iterdir():
                log.rename(directory / log.name)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
