# SPDX-License-Identifier: Apache-2.0
"""``--write`` and ``--confirm`` of every verb that may overwrite a block device: it has to be named twice."""

from __future__ import annotations

import argparse
from pathlib import Path

from characterize.errors import FlextraceError


def add_write_arguments(parser: argparse.ArgumentParser | argparse._ArgumentGroup, write: str) -> None:
    """The options; `write`: what the first one does."""
    parser.add_argument("--write", action="store_true", help=write)
    parser.add_argument(
        "--confirm",
        metavar="ID",
        help="serial number of that device, or its size in bytes if it has none; needed for --write",
    )


def check_write_arguments(device: str | Path | None, write: bool, confirm: str | None) -> None:
    """Refuse to write a device that was not named twice.

    Raises
    ------
    FlextraceError
    """
    if (write or confirm) and not device:
        raise FlextraceError("--write and --confirm are for a block device: give --device as well", 2)
    if write and not confirm:
        raise FlextraceError("--write overwrites the device: repeat its serial number, or size, by --confirm", 2)
    if confirm and not write:
        raise FlextraceError("--confirm is for --write, which overwrites the device: give that as well", 2)
