# SPDX-License-Identifier: Apache-2.0
"""Hypothesis searches at random on a developer's machine; in CI equal code gives equal results. Nothing is timed.

Programs under test end by signals also where the tests themselves were started by nohup or in the background.
"""

from __future__ import annotations

import os
import signal
from functools import partial

import pytest
from hypothesis import settings

settings.register_profile("local", deadline=None)
settings.register_profile("ci", derandomize=True, deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "local")


for number in (signal.SIGHUP, signal.SIGINT):
    if signal.getsignal(number) is signal.SIG_IGN:
        # What is ignored stays ignored in a program that is started, what is handled does not.
        signal.signal(number, lambda *_: None)


@pytest.fixture
def run_phase(tmp_path):
    """`straced.strace_run_phase` in a directory of the test's own."""
    from tests.straced import strace_run_phase  # noqa: PLC0415 (most tests need no strace)

    return partial(strace_run_phase, tmp_path)
