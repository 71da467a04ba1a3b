# SPDX-License-Identifier: Apache-2.0
"""Turns a trace file and a directory into a result document, by running the replay engine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO, Any, Unpack

from characterize.errors import FlextraceError, remedy_of
from replayer.running.binaries import find_binary
from replayer.running.confine import MemoryGroup, processor_limit
from replayer.running.engine_options import EngineOptions, engine_arguments
from replayer.running.processors import processor_options

TIMINGS = ("asap", "think", "recorded")
ORDERS = ("resource", "recorded", "thread")
CACHES = ("recorded", "warm", "cold", "keep")
LAYOUTS = ("any", "recorded")
ENGINES = ("auto", "sync", "io_uring", "null")
LATE_POLICIES = ("catch-up", "skip", "slip")
DIRECT_CHOICES = ("recorded", "on", "off")
SYNC_CHOICES = ("recorded", "off", "dsync", "sync")
COMPUTING_CHOICES = ("recorded", "alone", "off")
FITS = ("exact", "wrap", "scale")
LAYERS = ("vfs", "block")
THREADS_MAX = 32768  # of the engine

SCHEMA = "flextrace.replay/1"
"""Of the engine's result document (replayer/engine/result.c)."""

EXIT_OK, EXIT_USAGE, EXIT_NOT_TRUSTWORTHY, EXIT_INTERRUPTED = 0, 2, 3, 130

SHELL_SIGNALS = 128
"""A shell's, and the recorder's, exit status of a command that died of a signal: this and the signal's number."""

SAME_S = 0.5
"""Seconds within which signals are one: of a closed terminal both kernel and shell tell, timeout(1) signals twice."""

ANSWER_S = 1.0
"""Seconds that storage gets to answer after a replay that gave it up."""

CLOSING_S = 600.0
"""Seconds that storage gets to close and remove the files of a replay that has told its result."""

CLOSES = "storage has not let the engine close and remove its files yet: it does so by itself when that answers"
"""Warning of a replay whose engine has not come to its end by then."""

INTERRUPTED = "it was interrupted"
"""Why a replay was not compared with its trace."""

AGAIN_S = 0.1
"""Between two signals that a recorder is not to take for one (bpf/session.c)."""

DOCUMENT_END = b"}\n"
"""The last line of the engine's result document, and no other one of it (replayer/engine/json.c)."""

END_S = 20.0
"""Seconds that an engine gets to end by itself, and then to die: storage that does not answer keeps it from both."""

ENDING = (int(signal.SIGINT), int(signal.SIGTERM), int(signal.SIGHUP))
"""Signals by which a user or a service manager ends a replay."""

RECORDER_TALK = "flextrace record: "

OnInterval = Callable[[dict[str, Any]], bool | None]

RecorderCommand = Callable[[MemoryGroup | None], list[str]]
"""Makes the command that records an engine, which is to run in a memory group if there is one."""


def make_directory(path: Path) -> None:
    """Make a directory to work in, unless it is there.

    Raises
    ------
    FlextraceError
        It is something else than a directory, cannot be made, or takes no files.
    """
    try:
        path.mkdir(exist_ok=True)
    except FileExistsError as error:
        raise FlextraceError(f"--directory {path} is not a directory: name another", 2) from error
    except OSError as error:
        remedy = remedy_of(error) or "; name one in a directory that is there and that you may write"
        raise FlextraceError(f"cannot make directory {path}: {error.strerror}{remedy}", 2) from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise FlextraceError(f"cannot measure in {path}: it is not writable; choose another directory", 2)


def replay(
    trace_path: str | os.PathLike[str],
    directory: str | os.PathLike[str] | None,
    *,
    memory_group: MemoryGroup | None = None,
    on_interval: OnInterval | None = None,
    finish_on_signal: bool = False,
    recorder: Sequence[str] = (),
    locked: int | None = None,
    **options: Unpack[EngineOptions],
) -> dict[str, Any]:
    """Run a trace in a directory.

    Parameters
    ----------
    trace_path : path-like
    directory : path-like, optional
        Where the files of the replay lie; made if missing. Nothing else in it is touched. Not needed for the engine
        "null", nor where a trace has only a block device, and `device` is given.
    memory_group : MemoryGroup, optional
        An entered group in which the engine runs once it has read the trace, so that what it keeps of a long one takes
        nothing from the page cache.
    on_interval : callable, optional
        Gets ``{"t_s", "bytes", "requests"}`` of every interval while it runs; True stops the replay, with its result.
    finish_on_signal : bool
        SIGINT, SIGTERM and SIGHUP to this process end the replay with its result instead of raising; main thread only.
    recorder : sequence of str
        Command that starts the engine and records it (`replayer.running.recorder.recorder_command`). It puts the engine
        into the memory group, and its warnings become those of the document.
    locked : int, optional
        Descriptor of the directory, with a lock against other replays that outlasts this one.
    **options
        See `replayer.running.engine_options.EngineOptions`.

    Returns
    -------
    dict
        The document ``flextrace.replay/1``. ``trustworthy`` may be false, then ``reasons`` says why, such as that the
        recorder failed. With ``fidelity_missing`` the recording has not come to its end.

    Raises
    ------
    FlextraceError
        The engine refused the trace, the directory or an option, or it failed before it had a result.
    """
    command = engine_command(trace_path, directory, options)
    if locked is not None:
        command.append(f"--directory-descriptor={locked}")
    if recorder:
        command = [*recorder, *command]
    elif memory_group:
        command.append(f"--memory-group={memory_group.path}")
    document, talk = _run(command, memory_group, on_interval, finish_on_signal, recorded=bool(recorder), locked=locked)
    if recorder:
        said = [line.removeprefix(RECORDER_TALK).removeprefix("warning: ") for line in talk.splitlines()]
        document["warnings"] += said
    return document


def engine_command(
    trace_path: str | os.PathLike[str], directory: str | os.PathLike[str] | None, options: EngineOptions
) -> list[str]:
    """The command that `replay` runs, with think times as the recording says that processors were used.

    And with no more processors than the control group of this process gives, in which the engine will be. Of
    "computing" it knows "alone", too: as recorded, but for programs that were not.
    """
    limit = processor_limit()
    if limit is not None:
        options = {"processors": max(1, int(limit)), **options}
    computing = options.get("computing") or "recorded"
    if options.get("timing") == "think":
        known = processor_options(trace_path, computing=computing != "off", others=computing == "recorded")
        options = {**known, **options}
    if computing == "alone":
        options = {**options, "computing": "recorded"}
    return [str(find_binary("flextrace-replay")), os.fspath(trace_path), *engine_arguments(directory, options)]


def prepare(trace_path: str | os.PathLike[str], directory: str | os.PathLike[str]) -> dict[str, Any]:
    """Lay out the files that a trace needs, write them to the device and evict them (``phase="prepare"``).

    If that fails, or is interrupted, what it has begun goes again; files of an earlier one stay.
    """
    return replay(trace_path, directory, phase="prepare")


def _run(
    command: list[str],
    memory_group: MemoryGroup | None,
    on_interval: OnInterval | None,
    finish_on_signal: bool,
    *,
    recorded: bool,
    locked: int | None,
) -> tuple[dict[str, Any], str]:
    """The document, and what was said on stderr."""
    engine: subprocess.Popen[bytes] | None = None
    with tempfile.TemporaryFile() as complaints:
        try:
            # A session of its own: an interrupt at the terminal reaches this process, which ends the engine cleanly.
            with _deferred_signals():
                engine = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=complaints,
                    start_new_session=True,
                    pass_fds=[] if locked is None else [locked],
                )
            assert engine.stdout is not None
            signals: AbstractContextManager[list[int]]
            signals = _forwarded_signals(engine) if finish_on_signal else nullcontext([])
            with signals as forwarded:
                document = _read_output(engine, engine.stdout, on_interval)
                try:
                    status = _status(engine, document, recorded=recorded)
                except KeyboardInterrupt:
                    if document is None or not finish_on_signal:
                        raise
                    # The replay is over: another signal costs only what was to come behind it.
                    _end(engine)
                    status = EXIT_NOT_TRUSTWORTHY
                    document |= {"fidelity_missing": INTERRUPTED} if recorded else {}
        except BaseException:
            if engine is not None:
                _end(engine)
            raise
        complaints.seek(0)
        talk = complaints.read().decode(errors="replace").strip()
    if document is not None and status in (EXIT_OK, EXIT_NOT_TRUSTWORTHY):
        return document, talk
    failure = _failure(status, talk, memory_group)
    if document is not None:
        # What has failed is beside the run: its recording, or the removal of its files.
        document["reasons"].append(f"the replay has come to its result, but: {failure}")
        document["trustworthy"] = False
        return document, ""
    if forwarded:
        failure.exit_code = EXIT_INTERRUPTED
    raise failure


@contextmanager
def _deferred_signals() -> Iterator[None]:
    """Raise a signal that comes while inside at the end: an engine that is being started would be lost by it."""
    if threading.current_thread() is not threading.main_thread():
        yield  # no signal interrupts another thread
        return
    came: list[int] = []
    before = {number: signal.getsignal(number) for number in ENDING if callable(signal.getsignal(number))}
    for number in before:
        signal.signal(number, lambda number, _frame: came.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for number in came:
            signal.raise_signal(number)


@contextmanager
def _forwarded_signals(engine: subprocess.Popen[bytes]) -> Iterator[list[int]]:
    """SIGINT, SIGTERM and SIGHUP end the engine, which then prints its result; a second one raises as usual.

    Which have come so far.
    """
    forwarded: list[int] = []
    first_s = 0.0
    before = {number: signal.getsignal(number) for number in ENDING}
    if before[signal.SIGHUP] == signal.SIG_IGN:  # by nohup
        del before[signal.SIGHUP]

    def forward(number: int, frame: object) -> None:
        nonlocal first_s
        if not forwarded:
            first_s = time.monotonic()
            engine.send_signal(signal.SIGTERM)
        elif time.monotonic() - first_s > SAME_S:
            signal.signal(number, before[number])
            signal.raise_signal(number)
        forwarded.append(number)

    for number in before:
        signal.signal(number, forward)
    try:
        yield forwarded
    finally:
        if forwarded:  # another one would be taken for an interrupt of what is made of the result
            time.sleep(max(0.0, first_s + SAME_S - time.monotonic()))
        for number, handler in before.items():
            signal.signal(number, handler)


def _read_output(
    engine: subprocess.Popen[bytes], output: IO[bytes], on_interval: OnInterval | None
) -> dict[str, Any] | None:
    """Pass on the interval lines; what follows, up to its end, is the result document.

    Not up to the end of the output, which a recorder holds open as well: it waits for an engine that cannot end.
    """
    stopping = False
    lines: list[bytes] = []
    for line in output:
        if not lines and line.startswith(b'{"t_s"'):
            if on_interval is not None and not stopping and on_interval(json.loads(line)):
                stopping = True
                engine.send_signal(signal.SIGTERM)
            continue
        lines.append(line)
        if line == DOCUMENT_END:
            break
    try:
        return json.loads(b"".join(lines).decode("utf-8", "surrogateescape")) if lines else None
    except ValueError:
        return None  # it died while printing: its exit status says why


def _status(engine: subprocess.Popen[bytes], document: dict[str, Any] | None, *, recorded: bool) -> int:
    """The engine's exit status; its result does not wait for storage that does not answer, as its end has to."""
    if document is None:
        return engine.wait()
    if "unanswered" not in document:
        try:
            return engine.wait(timeout=CLOSING_S)
        except subprocess.TimeoutExpired:
            document["unanswered"] = 0
            document["warnings"].append(CLOSES)
    if recorded:
        _end_recording(engine)
        return EXIT_NOT_TRUSTWORTHY  # whatever the recorder says of not having waited
    with suppress(subprocess.TimeoutExpired):
        return engine.wait(timeout=ANSWER_S)
    return EXIT_NOT_TRUSTWORTHY


def _end_recording(recorder: subprocess.Popen[bytes]) -> None:
    """Have a recorder write its trace though the engine has not ended.

    The first signal it hands to the engine, unless that was done; one ends the recording, and one the waiting for it.
    """
    deadline_s = time.monotonic() + END_S
    while time.monotonic() < deadline_s:
        recorder.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            recorder.wait(timeout=AGAIN_S)
            return


def _end(engine: subprocess.Popen[bytes]) -> None:
    """End the engine after an error of ours: cleanly, so that it removes its files, then by force."""
    engine.send_signal(signal.SIGTERM)
    # It must not be stopped by a full pipe that nobody reads any more.
    if engine.stdout is not None:
        drain = threading.Thread(target=lambda: engine.stdout and engine.stdout.read(), daemon=True)
        drain.start()
    with suppress(subprocess.TimeoutExpired):
        engine.wait(timeout=END_S)
        return
    os.killpg(engine.pid, signal.SIGKILL)  # with a recorder it is two processes
    with suppress(subprocess.TimeoutExpired):
        engine.wait(timeout=END_S)


def _failure(status: int, talk: str, memory_group: MemoryGroup | None) -> FlextraceError:
    """What the engine said, or what its exit status means."""
    message = talk.removeprefix("flextrace-replay: ").removeprefix(RECORDER_TALK)
    if status > SHELL_SIGNALS:
        status = SHELL_SIGNALS - status
    if status == EXIT_USAGE:
        # argp adds a hint to its own program's help.
        return FlextraceError(message.split("\nTry ")[0].strip(), EXIT_USAGE)
    if status == -signal.SIGKILL:
        small = "this machine, or the control group that it runs in, has too little memory: see dmesg"
        if memory_group is not None:
            small = f"its memory group of {memory_group.limit_bytes} bytes is too small for its threads and buffers"
            small += ": give a larger --memory"
        return FlextraceError(f"the replay was killed, most likely since {small}")
    if status == -signal.SIGTERM:
        # The engine takes it as the end of a replay, but a recorder that still gets ready has not started the engine.
        return FlextraceError("the replay was ended before it had begun")
    if status < 0:
        return FlextraceError(f"the replay engine died of {signal.Signals(-status).name}. {talk}".strip())
    return FlextraceError(message or f"the replay engine failed with exit status {status} and said nothing")
