# SPDX-License-Identifier: Apache-2.0
"""Turns the address of a Dask scheduler, or a number of processes of this machine, into an engine for tasks.

Dask (distributed) is an extra of the package, and is imported when it is used. Its scheduler knows what every result
was made from, so that the tasks of a worker that dies, and results that only it held, are made again by the others, or
by the process that takes its place.
"""

from __future__ import annotations

import json
import logging
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

from characterize.cluster.recording_set import Engine
from characterize.errors import FlextraceError
from characterize.trace_files.whole_file import read_whole

EXTRA = "flextrace[cluster]"
# More parts than workers, so that one that is slower than the others is given fewer.
PARTS_PER_WORKER = 4
WORKERS_MAX = 1024
"""Processes of one machine; each is a Python of its own."""
_CONNECT_S = 30


@contextmanager
def dask_engine(scheduler: str | None = None, workers: int | None = None) -> Iterator[tuple[Engine, int]]:
    """An engine, and into how many parts to divide its work at least.

    Parameters
    ----------
    scheduler : str or None
        Address of a scheduler, such as ``tcp://head:8786``, or its file (``--scheduler-file`` of Dask). Its workers
        need the same flextrace, and the files under the same paths.
    workers : int or None
        Without a scheduler: so many processes of this machine, which end with the context.

    Raises
    ------
    FlextraceError
        Dask is not installed, the scheduler does not answer or has no workers, or a task was lost with several workers.
    """
    distributed = _distributed()
    if scheduler is None:
        if not workers or not 1 <= workers <= WORKERS_MAX:
            raise FlextraceError(f"{workers} workers cannot be started: give 1 to {WORKERS_MAX}", 2)
        with (
            tempfile.TemporaryDirectory(prefix="flextrace-cluster-") as directory,
            _local_cluster(distributed, workers, directory) as cluster,
            distributed.Client(cluster) as client,
        ):
            yield _engine_of(client), PARTS_PER_WORKER * workers
        return
    with _connected(distributed, scheduler) as client:
        found = len(client.scheduler_info(n_workers=-1)["workers"])
        if not found:
            raise FlextraceError(
                f"the Dask scheduler {scheduler} has no workers: start some ('dask worker {scheduler}')"
            )
        yield _engine_of(client), PARTS_PER_WORKER * found


@contextmanager
def _local_cluster(distributed: Any, workers: int, directory: str) -> Iterator[Any]:
    """So many processes of this machine, of which all have started.

    They inherit that SIGINT is blocked: a terminal sends Ctrl-C to all of them, and it is this one that ends them.
    """
    resource_tracker.ensure_running()  # else the first worker starts it, which unblocks SIGINT there
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    with ExitStack() as stack:
        stack.callback(signal.pthread_sigmask, signal.SIG_SETMASK, before)
        cluster = stack.enter_context(_started(distributed, workers, directory))
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        yield cluster


def _started(distributed: Any, workers: int, directory: str) -> Any:
    try:
        return distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            # The kernel says what memory there is; Dask would stop workers before.
            memory_limit=0,
            dashboard_address=None,
            # Without one its scheduler serves HTTP all the same, by itself at a port that others use as well.
            scheduler_kwargs={"dashboard_address": "localhost:0"},
            local_directory=directory,
            # What ends badly is one message here; Dask says of every process that it ends.
            silence_logs=logging.CRITICAL,
        )
    except RuntimeError as error:
        why = error.__cause__ or error
        raise FlextraceError(
            f"{workers} worker processes could not be started ({why}): give fewer --workers, or more memory"
        ) from error


def _distributed() -> Any:
    try:
        import distributed  # noqa: PLC0415 (an extra)
    except ImportError as error:
        raise FlextraceError(
            f"workers need Dask, which is not installed ({error}): pip install '{EXTRA}'", 2
        ) from error
    return distributed


def _connected(distributed: Any, scheduler: str) -> Any:
    try:
        if "://" not in scheduler and not scheduler.rpartition(":")[2].isdigit():
            # Dask would wait for the file.
            scheduler = json.loads(read_whole(Path(scheduler), "the scheduler's file"))["address"]
        return distributed.Client(scheduler, timeout=_CONNECT_S)
    except (FlextraceError, OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise FlextraceError(
            f"cannot reach the Dask scheduler {scheduler} ({error}): start it with 'dask scheduler', or give --workers"
        ) from error


def _engine_of(client: Any) -> Engine:
    def run(function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
        futures = client.map(function, list(items), pure=False)
        for number in range(len(futures)):
            yield _result(futures[number])
            # The worker need not keep it any longer.
            futures[number] = None

    return run


def _result(future: Any) -> Any:
    distributed = _distributed()
    try:
        return future.result()
    except distributed.scheduler.KilledWorker as error:
        raise FlextraceError(
            f"a part was given up after several workers had died with it ({error}): give the workers more memory, or "
            "use --sample"
        ) from error
