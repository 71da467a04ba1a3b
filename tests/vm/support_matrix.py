# SPDX-License-Identifier: Apache-2.0
"""What pytest found on each kernel (JUnit XML) -> docs/support_matrix.md: what works where, in a user's words.

Every test stands in one row, the first whose pattern is found in "module::test[parameters]".
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

OTHER = "everything else that is tested"
LINKED = r"test_(block|links)::.*[\[-]"
ROWS = {
    "replay: errors of disks are told": "test_faults::",
    "replay: disks in use, and tricks with them, are refused": "test_target_guard::",
    "each read and write call exact: file, thread, offset, size, result": (
        r"test_record::.*(data_operation|inherited)|that_were_open_before"
    ),
    "calls against strace": "test_agrees_with_strace",
    "calls against bpftrace (fentry)": "oracle_fentry",
    "calls against BCC (kprobes)": "oracle_bcc",
    "sendfile, splice, copy_file_range": r"\[splice\]",
    "asynchronous I/O (io_submit)": r"\[aio\]",
    "io_uring": r"\[io_uring\]",
    "mapped files (page faults)": r"\[mmap\]|mapped_(read|write)|cold_page",
    "open, close, sync, rename, unlink and other file operations": (
        r"\[(names|descriptors)\]|file_operation|rename|identity_survives"
    ),
    "flags of operations (direct, append, sync, RWF_*)": r"\[flags\]|created_files_and_flags",
    "threads, children, exec": r"\[tasks\]|tasks_of_the_tree",
    "32-bit programs": r"\[compat\]|32_bit",
    "missed bytes of reads (page cache)": "missed_bytes|mincore",
    "block I/O linked with calls: ext4": f"{LINKED}ext4",
    "block I/O linked with calls: xfs": f"{LINKED}xfs",
    "block I/O linked with calls: btrfs": f"{LINKED}btrfs",
    "block I/O linked with calls: ext4 on NVMe and on dm": "test_pieces_of_a_file_are_linked",
    "flush and FUA": "test_flushes",
    "discard": "test_discards",
    "zone operations": "test_zone",
    "memory groups (--memory), of version 1 or 2": r"test_confine::",
    "errors of devices": "test_an?_.*error|done_in_parts",
    "partitions": "partition",
    "dm and md: no byte counted twice": "disk_made_of_disks|pass_data_on",
    "loop": r"\[loop\]|disk_without_a_file_system",
    "zram (no requests)": r"\[zram\]|device_without_requests",
    "null_blk, with requests and without": r"\[null_blk",
    "NVMe": r"\[nvme\]",
    "SCSI": r"\[scsi\]",
    "sums agree with the kernel's own (closure)": "closure|kernel_has_counted",
    "losses are counted": "loss|lost|gaps",
    "choices: paths, sizes, devices, control groups, durations": "test_use::",
}


@dataclass(frozen=True)
class Found:
    """What one test said: works, limited, skipped or fails."""

    test: str
    outcome: str
    reason: str


@dataclass(frozen=True)
class Kernel:
    """A kernel and what ran on it."""

    name: str
    release: str
    found: list[Found]


def read_results(directory: Path) -> list[Found]:
    """All JUnit files of a directory; what the newest file says of a test counts."""
    paths = sorted(directory.glob("*.xml"), key=lambda path: path.stat().st_mtime_ns)
    found = [_found(case) for path in paths for case in ElementTree.parse(path).iter("testcase")]
    return list({one.test: one for one in found}.values())


def _found(case: ElementTree.Element) -> Found:
    test = f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"
    skipped = case.find("skipped")
    if case.find("failure") is not None or case.find("error") is not None:
        return Found(test, "fails", "")
    if skipped is None:
        return Found(test, "works", "")
    outcome = "limited" if skipped.get("type") == "pytest.xfail" else "skipped"
    return Found(test, outcome, (skipped.get("message") or "").strip())


def row_of(test: str) -> str:
    """The row that a test stands in."""
    return next((row for row, pattern in ROWS.items() if re.search(pattern, test)), OTHER)


class Notes:
    """Reasons, each with the number under which it stands below the table."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def mark(self, reasons: Iterable[str]) -> str:
        """The numbers of some reasons, in brackets."""
        unique = list(dict.fromkeys(reason for reason in reasons if reason))
        self.reasons += [reason for reason in unique if reason not in self.reasons]
        numbers = ", ".join(str(self.reasons.index(reason) + 1) for reason in unique)
        return f" [{numbers}]" if numbers else ""


def _cell(found: list[Found], notes: Notes) -> str:
    by = {kind: [one for one in found if one.outcome == kind] for kind in ("works", "limited", "skipped", "fails")}
    if not found:
        return "not run"
    if by["fails"]:
        return f"**fails** ({len(by['fails'])} of {len(found)} tests)"
    if by["limited"]:
        return f"limited ({len(by['works'])} of {len(found)})" + notes.mark(one.reason for one in by["limited"])
    skipped = notes.mark(one.reason for one in by["skipped"])
    if not by["works"]:
        return f"not tested here{skipped}"
    return f"works ({len(by['works'])})" + (f", {len(by['skipped'])} not tested here{skipped}" if skipped else "")


def support_matrix(kernels: list[Kernel], date: str, command: str) -> str:
    """The whole document."""
    notes = Notes()
    lines = [
        "# What works on which kernel",
        "",
        f"Made by `{command}` on {date}, from what its tests found; not edited by hand. The number of tests is in",
        "brackets. *Limited*: works but for what the note says. *Not tested here*: the note says what is missing.",
        "",
        "| | " + " | ".join(f"{kernel.name}<br>{kernel.release}" for kernel in kernels) + " |",
        "|---|" + "---|" * len(kernels),
    ]
    for row in [*ROWS, OTHER]:
        cells = [_cell([one for one in kernel.found if row_of(one.test) == row], notes) for kernel in kernels]
        lines.append(f"| {row} | " + " | ".join(cells) + " |")
    failed = [f"- {kernel.name}: `{one.test}`" for kernel in kernels for one in kernel.found if one.outcome == "fails"]
    if failed:
        lines += ["", "Tests that fail:", "", *failed]
    if notes.reasons:
        lines += ["", "Notes:", "", *(f"{number}. {reason}" for number, reason in enumerate(notes.reasons, 1))]
    return "\n".join(lines) + "\n"
