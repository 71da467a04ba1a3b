# SPDX-License-Identifier: Apache-2.0
"""Turns the JSON block of a trace into the names in it whose values are not what readers take for granted.

Names that are not here may have any value: they are only shown, or whoever reads them looks at them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from characterize.shape import amount, count, failing, finite, list_of, object_of, object_with, or_none, text

SECTORS_MAX = 2**54
"""Of a device whose bytes are a 63-bit number."""
_DEVICE = object_with(
    {"device": text, "name": or_none(text), "sectors": lambda value: count(value) and value <= SECTORS_MAX}
)
_PARAMETERS = or_none(object_of(or_none(finite)))
_FACTORS = object_of(object_with({"wanted": finite, "achieved": finite}, required=("wanted", "achieved")))
_CHECKS = {
    "declared": object_with({"processNum": amount}),
    "devices": list_of(_DEVICE),
    "imported": object_with({"bad_lines": count}),
    "lineage": object_with(
        dict.fromkeys(("before", "wanted", "achieved", "deviation"), _PARAMETERS)
        | {"changes": or_none(object_of(text)), "times": or_none(_FACTORS)}
    ),
    "processors": object_of(amount),
    "totals": object_of(object_of(object_of(amount))),
    **dict.fromkeys(("in_flight_max", "in_flight_end", "memory_limit_bytes"), or_none(count)),
    **dict.fromkeys(("holes", "missed_runs", "skips", "skipped"), object_of(count)),
}


def misshapen(metadata: Mapping[str, Any]) -> list[str]:
    """Of which names the values have another shape."""
    return failing(metadata, _CHECKS)
