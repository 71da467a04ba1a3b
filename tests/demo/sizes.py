# SPDX-License-Identifier: Apache-2.0
"""How large everything of the demo is, and what a machine must have for it."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from characterize.errors import FlextraceError
from replayer.running.binaries import find_binary

ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True)
class Sizes:
    """How large everything is; `QUICK` is for the tests."""

    memory: str = "128M"
    sort_bytes: int = 96_000_000
    """Fits into the memory group beside sort's buffer, so that it can start warm; with what sort writes it does not."""
    sort_buffer: str = "12M"
    accounts: int = 500_000
    transactions: int = 2500
    scale_budget: str = "210s"
    repeat: int = 3
    willy_seconds: str = "8s"
    free_bytes: int = 6_000_000_000


QUICK = Sizes(
    memory="32M",
    sort_bytes=3_000_000,
    sort_buffer="1M",
    accounts=30_000,
    transactions=150,
    scale_budget="12s",
    repeat=1,
    willy_seconds="1s",
    free_bytes=1_000_000_000,
)


def require(sizes: Sizes, output: Path) -> None:
    """Refuse to start what cannot end.

    Raises
    ------
    FlextraceError
        Without root, BTF, the programs or the room; with the remedy.
    """
    if os.geteuid() != 0:
        raise FlextraceError(
            "the demo records with eBPF and makes memory groups, which needs root: run 'make demo' as root, or install "
            "sudo (characterize, alter, willy, replay and predict work without)"
        )
    if not Path("/sys/kernel/btf/vmlinux").exists():
        raise FlextraceError(
            "this kernel has no BTF (/sys/kernel/btf/vmlinux is missing), which the recorder needs: boot a kernel with "
            "CONFIG_DEBUG_INFO_BTF=y, as Debian's and Ubuntu's are"
        )
    for name in ("flextrace-record", "flextrace-replay"):
        find_binary(name)
    if not (ROOT / "build/tests/debit_credit").exists():
        raise FlextraceError("build/tests/debit_credit is not built: run 'make demo', which builds it")
    free = shutil.disk_usage(output).free
    if free < sizes.free_bytes:
        raise FlextraceError(
            f"{output} has {free / 1e9:.1f} GB free, the demo needs {sizes.free_bytes / 1e9:.0f} GB: "
            "name a directory with more room by --output"
        )
