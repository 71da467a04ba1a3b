# SPDX-License-Identifier: Apache-2.0
"""Turns a row of a table of measurements into a workload: some of the five parameters, and others by their names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from characterize.workload import Workload


@dataclass(frozen=True)
class TableWorkload(Workload):
    """A workload with other parameters than the five; those of the five that its table lacks are NaN.

    Attributes
    ----------
    extra : tuple of (str, float)
    """

    extra: tuple[tuple[str, float], ...] = ()

    def as_document(self) -> dict[str, float | None]:
        """The five and the others."""
        return {**super().as_document(), **dict(self.extra)}

    @classmethod
    def of_document(cls, document: Mapping[str, Any], extra: Iterable[str]) -> TableWorkload:
        """The reverse of `as_document`.

        Raises
        ------
        KeyError
            One of the others is missing.
        """
        five = Workload.from_document(document)
        return cls(**asdict(five), extra=tuple((name, float(document[name])) for name in extra))
