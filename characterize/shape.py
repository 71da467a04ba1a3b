# SPDX-License-Identifier: Apache-2.0
"""Turns a part of a JSON document into whether it is what everybody takes for granted: a number, a list of texts, ...

Documents are copied, cut off and edited; one that is not as it should be is told where it is read, and not by whoever
computes with it first.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeGuard

Check = Callable[[Any], bool]
LARGEST = sys.float_info.max
"""A whole number beyond it is no float."""


def finite(value: Any) -> TypeGuard[float]:
    """A number, and no NaN or infinity."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -LARGEST <= value <= LARGEST


def amount(value: Any) -> bool:
    """A number from 0 on."""
    return finite(value) and value >= 0


def positive(value: Any) -> TypeGuard[float]:
    """A number above 0."""
    return finite(value) and value > 0


def share(value: Any) -> bool:
    """A number from 0 to 1."""
    return finite(value) and 0 <= value <= 1


def count(value: Any) -> bool:
    """A whole number from 0 on."""
    return isinstance(value, int) and amount(value)


def text(value: Any) -> bool:
    """Of any characters."""
    return isinstance(value, str)


def flag(value: Any) -> bool:
    """True or false."""
    return isinstance(value, bool)


def list_of(check: Check, length: int | None = None) -> Check:
    """A list whose elements pass a check."""
    return lambda value: isinstance(value, list) and length in {None, len(value)} and all(map(check, value))


def object_of(check: Check) -> Check:
    """An object of any names whose values pass a check."""
    return lambda value: isinstance(value, dict) and all(map(check, value.values()))


def object_with(checks: Mapping[str, Check], required: tuple[str, ...] = ()) -> Check:
    """An object in which what is there of some names passes their checks, and what is required is there."""
    return lambda value: isinstance(value, dict) and set(required) <= set(value) and not failing(value, checks)


def or_none(check: Check) -> Check:
    """What passes a check, or null."""
    return lambda value: value is None or check(value)


def failing(document: Mapping[str, Any], checks: Mapping[str, Check]) -> list[str]:
    """The names whose values are there and do not pass their checks."""
    return [name for name, check in checks.items() if name in document and not check(document[name])]
