# SPDX-License-Identifier: Apache-2.0
"""What is told of measuring while it goes on: on a terminal one line, however narrow that is."""

import os
import re
import sys

import pytest

from tests.runs.terminal import on_terminal

pytestmark = pytest.mark.parallel

MEASURED = """
import time
from characterize.workload import Workload
from flextrace.output.measuring_progress import Progress
from selfscale.exploring.plan import Step
from tests.formulas.synthetic_machine import Machine

workload = Workload(512.0 * 1024 * 1024, 0.25, 0.75, 131072.0, 16.0)
with Progress(1000.0, 0, print) as progress:
    step = progress.wrap(Machine([]).measure)
    for number in range(1, 4):
        step(Step(workload, "curve", 1.0, number=number, planned=120))
        time.sleep(0.3)
"""


@pytest.mark.parametrize("columns", [32, 60, 80, 200])
def test_on_a_terminal_it_is_one_line_with_the_count_and_the_eta(columns):
    environment = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}}
    text, _ = on_terminal([sys.executable, "-c", MEASURED], columns, env={**environment, "TERM": "xterm"})
    assert "\x1b[1A" not in text, "the cursor never goes up: nothing was drawn in more than one line"
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text.replace("\r", "\n")).split("\n")
    assert all(len(line) <= columns for line in lines)
    assert any("  3/120" in line and "ETA 2 min 20 s" in line for line in lines)
    assert any("processNum 16" in line for line in lines) == (columns == 200)
