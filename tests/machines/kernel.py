# SPDX-License-Identifier: Apache-2.0
"""What the running kernel offers, from its own type information: for the limits that are named for older ones."""

from __future__ import annotations

from functools import cache
from pathlib import Path

BTF = Path("/sys/kernel/btf/vmlinux")


@cache
def has_tracepoint(name: str) -> bool:
    """Whether programs can be attached to a tracepoint."""
    return BTF.exists() and f"btf_trace_{name}\0".encode() in BTF.read_bytes()


@cache
def has_type(name: str) -> bool:
    """Whether the kernel has something of this name, such as a structure."""
    return BTF.exists() and f"\0{name}\0".encode() in BTF.read_bytes()
