# SPDX-License-Identifier: Apache-2.0
"""Public traces, which are never copied into the repository, and lie beside it where somebody has them."""

from pathlib import Path

import pytest

from tests.truths.straced import ROOT

PLACE = ROOT.parent / "shared/data/traces"
CLOUDPHYSICS = PLACE / "cloudPhysicsIO.csv"


def real_trace(name: str) -> Path:
    """One of them, or the test is skipped."""
    if not (PLACE / name).exists():
        pytest.skip(f"{PLACE / name} is not here")
    return PLACE / name
