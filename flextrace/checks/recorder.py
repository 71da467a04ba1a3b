# SPDX-License-Identifier: Apache-2.0
"""Turns the survey of the recorder (``flextrace-record --survey``) and one small recording into checks."""

from __future__ import annotations

import errno
import json
import os
import re
import resource
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from characterize.errors import FlextraceError
from characterize.units import format_bytes
from flextrace.checks.check import Check, Status, fail, ok, warn, with_root
from flextrace.checks.host import Host, ignores_file_capabilities
from flextrace.checks.kernel import NEWER_KERNEL
from replayer.running.binaries import find_binary

BINARIES, PRIVILEGES, PROGRAMS, RECORDING = "binaries", "privileges", "programs", "recording"
SURVEY_SECONDS_MAX = 120
RING_BYTES_MIN = 32 << 10
REBUILD = "make build, in the flextrace checkout"
DEBIANS = "Debian's kernels, on which all were tried (6.1 and 6.12),"
MEMORY_ACCOUNTED_SINCE = (5, 11)


def version_of(binary: Path) -> str | None:
    """What ``--version`` says after the name, or None if it cannot be run."""
    try:
        done = subprocess.run([binary, "--version"], capture_output=True, errors="replace", timeout=30, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    words = done.stdout.split()
    return words[1] if done.returncode == 0 and len(words) == 2 else None


def binary_check(name: str, version: str | None) -> tuple[Check, Path | None]:
    """Whether a program is there, runs and has our version (None: unknown); and where it is.

    The recorder is what recording needs; without the engine only replays do not work.
    """
    bad = fail if name == "flextrace-record" else warn
    lost = "" if bad is fail else "; replay, scale and compare do not work"
    try:
        path = find_binary(name)
    except FlextraceError as error:
        text, _, remedy = str(error).partition(": ")
        return bad(BINARIES, name, text + lost, remedy), None
    own = version_of(path)
    if own is None:
        return bad(BINARIES, name, f"{path} cannot be run{lost}", REBUILD), None
    if version and own != version:
        return warn(BINARIES, name, f"{path} is version {own}, the command is {version}", REBUILD), path
    return ok(BINARIES, name, f"{path}, version {own}"), path


def survey(recorder: Path) -> tuple[dict[str, Any] | None, str]:
    """The recorder's document and what it said beside it; or None and why there is none."""
    try:
        done = subprocess.run(
            [recorder, "--survey"], capture_output=True, errors="replace", timeout=SURVEY_SECONDS_MAX, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        return None, _reason(error)
    try:
        return json.loads(done.stdout), message_of(done.stderr)
    except ValueError:
        return None, message_of(done.stderr) or f"it ended with {done.returncode}"


def message_of(stderr: str) -> str:
    """The recorder's own words: without its name, the kernel's log, and the advice to ask the doctor."""
    lines = [line for line in stderr.splitlines() if line.startswith("flextrace record: ")]
    text = "; ".join(line.removeprefix("flextrace record: ") for line in lines) or stderr.strip()
    return re.sub(r"; flextrace doctor says [a-z ]*| \(flextrace doctor says [a-z ]*\)", "", text)


def capability_checks(document: dict[str, Any], recorder: Path, host: Host) -> list[Check]:
    """One for each capability that recording can make use of."""
    required = [row["name"] for row in document["capabilities"] if row["required"]]
    checks = []
    for row in document["capabilities"]:
        if row["has"]:
            checks.append(ok(PRIVILEGES, row["name"], "the recorder has it"))
        elif row["required"]:
            checks.append(fail(PRIVILEGES, row["name"], row["loss"], _give(required, recorder, host)))
        else:
            names = [each["name"] for each in document["capabilities"]]
            checks.append(warn(PRIVILEGES, row["name"], row["loss"], _give(names, recorder, host)))
    return checks


def _give(capabilities: list[str], recorder: Path, host: Host) -> str:
    if host.gains_no_privileges:
        return "this session can gain no privileges (NoNewPrivs in /proc/self/status): use one that can, such as ssh's"
    root = with_root("record ...")
    if ignores_file_capabilities(recorder):
        return f"{root} (setcap has no effect: {recorder.parent} is mounted with nosuid)"
    names = ",".join(name.lower() for name in capabilities)
    return f"sudo setcap {names}=ep {shlex.quote(str(recorder))} (then everybody who may run it can record), or {root}"


def locked_memory_check(host: Host, limit_bytes: int, has_resource: bool) -> Check:
    """Before 5.11 maps and rings counted as locked memory of the user, who may lock little."""
    name = "locked memory"
    if host.version >= MEMORY_ACCOUNTED_SINCE:
        return ok(PRIVILEGES, name, "no limit: since Linux 5.11 maps and rings count as ordinary memory")
    if limit_bytes == resource.RLIM_INFINITY or has_resource:
        return ok(PRIVILEGES, name, "no limit")
    return fail(
        *(PRIVILEGES, name, f"limited to {format_bytes(limit_bytes)}, which maps and rings exceed"),
        f"sudo prlimit --pid $$ --memlock=unlimited, or {with_root('record ...')}",
    )


def ring_check(rings: int, ring_bytes: int, available_bytes: int | None) -> Check:
    """Memory that a recording takes for as long as it runs, of what is available (None: unknown)."""
    wanted = rings * ring_bytes
    if available_bytes is None:
        return ok(RECORDING, "rings", f"{rings} x {format_bytes(ring_bytes)}; /proc does not say how much is available")
    told = f"{rings} x {format_bytes(ring_bytes)} of {format_bytes(available_bytes)} available"
    if wanted <= available_bytes / 4:
        return ok(RECORDING, "rings", told)
    fitting = RING_BYTES_MIN
    while fitting * 2 * rings <= available_bytes / 4:
        fitting *= 2
    return warn(
        *(RECORDING, "rings", f"{told}: the page cache of the application gets smaller"),
        f"flextrace record --ring-bytes {fitting} ...",
    )


def program_checks(document: dict[str, Any], message: str) -> list[Check]:
    """One for each BPF program: whether this kernel takes it, and what is lost if it does not."""
    if document["error"]:
        if any(row["required"] and not row["has"] for row in document["capabilities"]):
            text = "not tried, for want of privileges"
            return [fail(PROGRAMS, "all", text, "give the recorder its capabilities first, see above")]
        container = "docker run --pid=host --cap-add BPF --cap-add PERFMON ..."
        remedy = f"what fails above comes first; in a container: {container}"
        return [fail(PROGRAMS, "all", message or document["error"], remedy)]
    return [_program_check(row) for row in document["programs"]]


def _program_check(row: dict[str, Any]) -> Check:
    name = row["program"]
    if row["state"] == "loads":
        return ok(PROGRAMS, name, "loads")
    if row["state"] == "not needed":
        return ok(PROGRAMS, name, "not needed on this kernel")
    if row["state"] == "missing":
        cause = f"{row['loss']}: this kernel has no {row['name']}"
        if row["feature"]:
            remedy = f"use a kernel built with {row['feature']}=y, such as Debian's: sudo apt install linux-image-amd64"
        elif row["since"]:
            remedy = f"Linux {row['since']} has it: {NEWER_KERNEL}"
        else:
            remedy = "nothing, where it belongs to a module; a kernel with that file system built in has it"
    else:
        cause = f"{row['loss']}: this kernel refuses the program ({row['error']}{_quoted(row['words'])})"
        remedy = f"{NEWER_KERNEL}; if that does not help, please report this line"
        if row["error"] == os.strerror(errno.EPERM):  # before the verifier looks at it, which has other errors
            remedy = f"nothing, where a rule of this machine forbids it, whatever its version; {DEBIANS} take it"
    # A control group is recorded only on demand.
    required = row["required"] and row["layer"] != "group"
    other = {"block": "vfs", "vfs": "block"}.get(row["layer"])
    if required and other:
        remedy = f"flextrace record --layer {other} ... works without; {remedy}"
    return Check(PROGRAMS, name, Status.FAIL if required else Status.WARN, cause, remedy)


def _quoted(words: str | None) -> str:
    return f': "{words}"' if words else ""


def trial_check(recorder: Path, directory: Path) -> Check:
    """Record a shell that writes ten bytes, and throw the trace away. What this says is true of all recordings here."""
    name = "trial"
    try:
        with tempfile.TemporaryDirectory(prefix=".flextrace-doctor-", dir=directory) as place:
            trace = Path(place) / "trial.iotrace"
            command = ["/bin/sh", "-c", 'echo flextrace >"$0"', f"{place}/written"]
            done = subprocess.run(
                [recorder, "--quiet", "--output", trace, "--", *command],
                capture_output=True,
                errors="replace",
                timeout=SURVEY_SECONDS_MAX,
                check=False,
            )
            size = trace.stat().st_size if trace.exists() else 0
    except (OSError, subprocess.SubprocessError) as error:
        return fail(RECORDING, name, f"nothing could be recorded: {_reason(error)}", "what fails above comes first")
    return trial_outcome(done.returncode, message_of(done.stderr), size)


def _reason(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


def trial_outcome(exit_code: int, message: str, trace_bytes: int) -> Check:
    """What the trial's exit code and words mean."""
    name = "trial"
    if exit_code not in (0, 3) or not trace_bytes:
        cause = f"nothing could be recorded: {message or f'the recorder ended with {exit_code}'}"
        return fail(RECORDING, name, cause, "what fails above comes first; else please report this line")
    if exit_code == 3:
        return warn(RECORDING, name, message, "flextrace record --ring-bytes 64M ...")
    if message:
        return warn(RECORDING, name, message, "what is said above comes first; else please report this line")
    return ok(RECORDING, name, f"a shell was recorded, {format_bytes(trace_bytes)}, nothing lost")


def recorder_checks(host: Host, directory: Path, version: str | None, available_bytes: int | None) -> list[Check]:
    """Everything that takes the compiled programs."""
    check, recorder = binary_check("flextrace-record", version)
    engine, _ = binary_check("flextrace-replay", version)
    if recorder is None:
        return [check, engine]
    document, message = survey(recorder)
    if document is None:
        return [fail(BINARIES, check.name, f"{recorder} --survey gave no answer: {message}", REBUILD), engine]
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    has_resource = bool(int(_status_field(host, "CapEff") or "0", 16) >> 24 & 1)
    cachestat = "cachestat(2)" if document["cachestat"] else "mincore(2), page by page: this kernel has no cachestat(2)"
    return [
        *(check, engine),
        *capability_checks(document, recorder, host),
        locked_memory_check(host, soft, has_resource),
        *program_checks(document, message),
        ok(RECORDING, "cached parts", f"are found with {cachestat}"),
        ring_check(document["rings"], document["ring_bytes"], available_bytes),
        trial_check(recorder, directory),
    ]


def _status_field(host: Host, name: str) -> str | None:
    text = host.text(host.proc / "self/status") or ""
    return next((line.split()[1] for line in text.splitlines() if line.startswith(f"{name}:")), None)
