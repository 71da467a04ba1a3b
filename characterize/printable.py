# SPDX-License-Identifier: Apache-2.0
"""Turns a name that may be of any bytes into text for a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    r"""The text with escapes, such as ``\n`` and ``\x1b``, for what is no character to be seen.

    Those are control characters, which would end a line or command the terminal, and bytes that are not UTF-8
    (surrogates); a backslash stays one.
    """
    if text.isprintable():
        return text
    return "".join(it if it.isprintable() else it.encode("unicode_escape").decode() for it in text)
