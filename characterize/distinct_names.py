# SPDX-License-Identifier: Apache-2.0
"""Turns paths of several traces that become one into names that no two of them share."""

from __future__ import annotations

from collections.abc import Set


def numbered(paths: Set[str], taken: Set[str], number: int) -> dict[str, str]:
    """Names for files that are other ones than those that are `taken`: with `number` behind it, or a larger one."""
    names: dict[str, str] = {}
    for path in sorted(paths):
        name, tried = path, number
        while name in taken or (name != path and name in paths):
            name, tried = f"{path} ({tried})", tried + 1
        names[path] = name
    return names
