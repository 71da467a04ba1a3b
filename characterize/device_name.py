# SPDX-License-Identifier: Apache-2.0
"""Turns a device number of a trace into its name."""

from __future__ import annotations


def device_name(device: int) -> str:
    """``major:minor`` of a device number in the kernel's own encoding (20 bits of minor)."""
    return f"{device >> 20}:{device & 0xFFFFF}"
