# SPDX-License-Identifier: Apache-2.0
"""``--set NAME=VALUE`` of ``predict`` and ``rank``: values of a table's parameters beyond the five."""

from __future__ import annotations

import argparse
import math

from characterize.errors import FlextraceError


def add_settings_argument(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """The option, which may be repeated."""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        dest="settings",
        help="another parameter of a table's profile (default: its median in the table)",
    )


def parse_settings(texts: list[str]) -> dict[str, float]:
    """Values by name.

    Raises
    ------
    FlextraceError
        One has no number.
    """
    from selfscale.profiles.table_columns import LARGEST  # noqa: PLC0415

    settings = {}
    for text in texts:
        name, _, value = text.partition("=")
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not abs(number) <= LARGEST:  # nor if it is none
            raise FlextraceError(f"--set {text}: give NAME=VALUE with a number up to {LARGEST:g}", 2)
        settings[name.strip()] = number
    return settings
