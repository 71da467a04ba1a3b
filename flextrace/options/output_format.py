# SPDX-License-Identifier: Apache-2.0
"""``--format`` of every verb that prints a result."""

from __future__ import annotations

import argparse


def add_format_argument(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """The option."""
    parser.add_argument("--format", choices=("text", "json"), default="text", help="of what is printed (default: text)")
