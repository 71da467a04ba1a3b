# SPDX-License-Identifier: Apache-2.0
"""``flextrace record``: hands over to the recorder, in a memory group of its own if asked for, and archives its trace.

The recorder writes a trace file; an archive is made of it when the recording has ended, and takes its place only when
it was read back and is equal.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import stat
import subprocess
from pathlib import Path
from types import FrameType

from characterize.errors import FlextraceError, remedy_of
from characterize.trace_files.expansion import ARCHIVE_SUFFIX
from characterize.trace_files.new_file import check_new_file, check_replaceable
from flextrace.export import write_archive
from flextrace.output.talk import say
from replayer.run import EXIT_INTERRUPTED
from replayer.running.binaries import find_binary
from replayer.running.confine import MemoryGroup, parse_limit

# Handed over as they are; the recorder parses them.
RECORDER_OPTIONS = (
    *("output", "process", "in_cgroup", "device", "path", "min_size"),
    *("max_time", "max_size", "ring_bytes", "max_files"),
)
RECORDER_SWITCHES = ("force", "quiet", "dry_run")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``record``."""
    parser.usage = "flextrace record [OPTION ...] (-p PID | --in-cgroup DIRECTORY | -- COMMAND [ARGUMENT ...])"
    parser.epilog = (
        "BYTES and SIZE may have K, M, G or T behind them, TIME ns, us, ms, s, m or h. The exit code is that of the "
        "command, if it is not 0; otherwise 0 ok, 1 failed, 2 usage, 3 records were lost."
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND", help="what to start and record")
    target = parser.add_argument_group("what is recorded instead of a command")
    target.add_argument("-p", "--process", metavar="PID", help="a running process, with its threads and children")
    target.add_argument(
        "--in-cgroup", metavar="DIRECTORY", help="all tasks of this control group, also those that enter it later"
    )
    part = parser.add_argument_group("which of its I/O, and how long")
    part.add_argument("--layer", choices=("vfs", "block", "both"), default="both", help="default: both")
    part.add_argument("--device", metavar="DEVICE", help="leave out all but this block device (path or MAJOR:MINOR)")
    part.add_argument("--path", metavar="PREFIX", help="leave out operations on all files but those below PREFIX")
    part.add_argument("--min-size", metavar="BYTES", help="leave out reads and writes that ask for less")
    part.add_argument("--max-time", metavar="TIME", help="end the recording after this time; the command goes on")
    part.add_argument(
        "--max-size", metavar="BYTES", help="end the recording before the trace gets larger; the command goes on"
    )
    cache = parser.add_argument_group("page cache of the command")
    cache.add_argument(
        "--memory",
        metavar="SIZE",
        type=parse_limit,
        help="confine the command, and the page cache it fills, to SIZE (the same option as of scale and compare)",
    )
    cache.add_argument(
        "--warm",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="read FILE into the confined page cache before the command starts (with --memory; may be repeated)",
    )
    recorder = parser.add_argument_group("memory of the recorder")
    recorder.add_argument("--ring-bytes", metavar="BYTES", help="ring buffer of each CPU (default: 16M, or less)")
    recorder.add_argument("--max-files", metavar="N", help="how many files can be told apart (default: 1048576)")
    output = parser.add_argument_group("output")
    output.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="trace file (default: COMMAND-DATE-TIME.iotrace); NAME.parquet: a compressed archive of it",
    )
    output.add_argument("--force", action="store_true", help="overwrite FILE")
    output.add_argument("--quiet", action="store_true", help="say nothing but warnings and errors")
    output.add_argument("--dry-run", action="store_true", help="say what would be recorded, and how; record nothing")


def warm(paths: list[Path], group: MemoryGroup) -> None:
    """Read files into the page cache of a memory group.

    Pages that are cached already are charged to whoever read them first and would not count in the group, so they are
    written back and dropped before.

    Raises
    ------
    FlextraceError
        A file cannot be read.
    """
    for path in paths:
        try:
            # Of a pipe it would wait for who writes into it.
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                if not (stat.S_ISREG(mode := os.fstat(descriptor).st_mode) or stat.S_ISBLK(mode)):
                    raise FlextraceError(f"cannot warm {path}: it is a directory, a pipe or such; name a file")
                os.fsync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise FlextraceError(f"cannot warm {path}: {error.strerror}{remedy_of(error)}") from error
        command = group.wrap(["cat", "--", str(path)])
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, errors="replace", check=False)
        if done.returncode:
            why = done.stderr.strip() or f"reading it in the memory group ended with status {done.returncode}"
            raise FlextraceError(f"cannot warm {path}: {why}")


def run(arguments: argparse.Namespace) -> int:
    """Run the recorder; its exit code is passed on."""
    archive = archive_name(arguments)
    if arguments.output:
        check_replaceable(Path(arguments.output))
    recorder = [str(find_binary("flextrace-record")), "--layer", arguments.layer]
    for option in RECORDER_OPTIONS:
        if (value := getattr(arguments, option)) is not None:
            recorder.append(f"--{option.replace('_', '-')}={value}")
    recorder += [f"--{option.replace('_', '-')}" for option in RECORDER_SWITCHES if getattr(arguments, option)]
    recorder += ["--intermediate"] if archive else []
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if command:
        command = ["--", *command]
    if arguments.memory is None:
        if arguments.warm:
            raise FlextraceError("--warm fills the page cache of a memory group: give its size with --memory", 2)
        if not archive:
            # Python ignores these, and what is ignored would stay so in the command.
            for number in (signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_DFL)
            os.execv(recorder[0], recorder + command)
        status = run_recorder(recorder + command)
    elif not command:
        raise FlextraceError("--memory confines a command that is started here, not a running process", 2)
    else:
        with MemoryGroup(arguments.memory) as group:
            if not arguments.dry_run:
                warm(arguments.warm, group)
            status = run_recorder([*recorder, f"--cgroup={group.path}", *command])
    if archive:
        keep_as_archive(Path(arguments.output), archive, force=arguments.force, quiet=arguments.quiet)
    return status


def run_recorder(command: list[str]) -> int:
    """Run the recorder to its end; a signal that would end this process ends the recording instead.

    Returns
    -------
    int
        Its exit status, 128 and the signal's number if it died of one.
    """
    recorder: list[subprocess.Popen[bytes]] = []
    early: list[int] = []

    def forward(number: int, frame: FrameType | None) -> None:
        # The same: if the recorder has it already, it is one signal for it.
        if recorder:
            recorder[0].send_signal(number)
        else:
            early.append(number)

    def pass_over(number: int, frame: FrameType | None) -> None:
        """What a key does reaches the recorder from the terminal; here it must only not interrupt the wait.

        A handler of our own is not inherited, as ignoring would be.
        """

    handlers = dict.fromkeys((signal.SIGINT, signal.SIGQUIT), pass_over)
    handlers |= dict.fromkeys((signal.SIGTERM, signal.SIGHUP), forward)
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:  # by nohup
        del handlers[signal.SIGHUP]
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        recorder.append(subprocess.Popen(command))
        # It may be there before it is known here.
        for number in early:
            recorder[0].send_signal(number)
        status = recorder[0].wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return status if status >= 0 else 128 - status


def archive_name(arguments: argparse.Namespace) -> Path | None:
    """The archive that is asked for; the recorder is then given a name of its own beside it.

    Raises
    ------
    FlextraceError
        There is no place for the archive, or it exists and is not to be overwritten.
    """
    archive = Path(arguments.output or "")
    if archive.suffix.lower() != ARCHIVE_SUFFIX:
        return None
    check_new_file(archive, force=arguments.force)
    # Of this process alone, so that no older trace can be taken for the one that was recorded.
    arguments.output = str(archive.with_suffix(f".{os.getpid()}.iotrace"))
    return archive


def keep_as_archive(trace: Path, archive: Path, *, force: bool, quiet: bool) -> None:
    """Turn the trace into the archive, if anything was recorded; the trace stays unless the archive is there.

    Raises
    ------
    FlextraceError
        The archive could not be written, or does not read back as the trace; it names the trace.
    """
    if not trace.exists():
        return
    try:
        lines = write_archive(trace, archive, force=force)
    except (FlextraceError, KeyboardInterrupt) as error:
        interrupted = isinstance(error, KeyboardInterrupt)
        raise FlextraceError(
            f"{'interrupted' if interrupted else error}. The recording is kept as {trace}; "
            f"to archive it later: flextrace export {shlex.quote(str(trace))} -o {shlex.quote(str(archive))}",
            EXIT_INTERRUPTED if interrupted else 1,
        ) from error
    trace.unlink()
    if not quiet:
        lines += [f"{trace} is gone", f"next: flextrace characterize {shlex.quote(str(archive))}"]
    for line in lines[1:] if quiet else lines:
        say("record", line)
