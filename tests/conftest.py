# SPDX-License-Identifier: Apache-2.0
"""Hypothesis searches at random on a developer's machine; in CI equal code gives equal results. Nothing is timed."""

from __future__ import annotations

import os
from functools import partial

import pytest
from hypothesis import settings

settings.register_profile("local", deadline=None)
settings.register_profile("ci", derandomize=True, deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "local")


@pytest.fixture
def run_phase(tmp_path):
    """`straced.strace_run_phase` in a directory of the test's own."""
    from tests.straced import strace_run_phase  # noqa: PLC0415 (most tests need no strace)

    return partial(strace_run_phase, tmp_path)
