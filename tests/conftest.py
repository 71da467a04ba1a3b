# SPDX-License-Identifier: Apache-2.0
"""Hypothesis searches at random on a developer's machine; in CI equal code gives equal results. Nothing is timed.

Programs under test end by signals also where the tests themselves were started by nohup or in the background.
"""

from __future__ import annotations

import os
import signal
import warnings
from functools import partial

import pytest
from hypothesis import settings

# What several files of tests share says what it found, too.
pytest.register_assert_rewrite("tests.formulas", "tests.machines", "tests.runs", "tests.traces", "tests.truths")

from tests.machines import left_behind  # noqa: E402
from tests.machines.kernel import BTF  # noqa: E402

settings.register_profile("local", deadline=None)
settings.register_profile("ci", derandomize=True, deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "local")


for number in (signal.SIGHUP, signal.SIGINT):
    if signal.getsignal(number) is signal.SIG_IGN:
        # What is ignored stays ignored in a program that is started, what is handled does not.
        signal.signal(number, lambda *_: None)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Skip what needs root or the recorder where these are not."""
    from tests.truths.told import RECORDER  # noqa: PLC0415 (most tests have imported it by now)

    records = item.get_closest_marker("records")
    if os.geteuid() != 0 and (records or item.get_closest_marker("root")):
        pytest.skip("needs root")
    if records and not BTF.exists():
        pytest.skip("this kernel has no BTF")
    if records and not RECORDER.exists():
        pytest.skip(f"{RECORDER} is not built (make build)")


@pytest.fixture(scope="session", autouse=True)
def _nothing_of_killed_runs(tmp_path_factory):
    """A loop device or a mount that is left takes its number, its disk's room, and maybe a test's time."""
    with left_behind.claimed(tmp_path_factory.getbasetemp()):
        if os.geteuid() == 0 and (left := left_behind.take_away()):
            warnings.warn(f"tests that were killed had left {', '.join(left)}", stacklevel=1)
        yield


@pytest.fixture
def run_phase(tmp_path):
    """`straced.strace_run_phase` in a directory of the test's own."""
    from tests.truths.straced import strace_run_phase  # noqa: PLC0415 (most tests need no strace)

    return partial(strace_run_phase, tmp_path)
