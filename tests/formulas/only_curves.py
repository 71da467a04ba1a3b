# SPDX-License-Identifier: Apache-2.0
"""Explorations that measure nothing off their curves, for tests of what is found by these."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def only_curves() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("selfscale.exploring.informative.most_informative", lambda profile, generator, count: [])
        yield
