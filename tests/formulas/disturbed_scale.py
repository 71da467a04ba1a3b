# SPDX-License-Identifier: Apache-2.0
"""`flextrace scale` on a machine that is a formula, while something happens to it; its files and documents are real."""

import subprocess
import tempfile
from pathlib import Path

import pytest

from flextrace.runs import measuring
from tests.formulas.synthetic_machine import MIB, Machine

CACHE_BYTES = 16 * MIB


class Disturbed:
    """Steps of a measurement; before one of them, or several, something happens."""

    def __init__(self):
        self.measured = 0
        self.before = {}

    def wrap(self, measure):
        def step(request):
            self.before.pop(self.measured, lambda: None)()
            point = measure(request)
            self.measured += 1
            return point

        return step


@pytest.fixture
def disturbed(tmp_path, monkeypatch):
    """What happens during the verb, on a machine that is a formula; its files and documents are real."""
    machine, disturbed = Machine([(CACHE_BYTES, 500e-6)]), Disturbed()
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setattr("selfscale.measuring.environment.cache_limit_bytes", lambda limit: CACHE_BYTES)
    monkeypatch.setattr("selfscale.exploring.informative.most_informative", lambda profile, generator, count: [])
    monkeypatch.setattr("selfscale.predict.record_scores", lambda profile: None)
    monkeypatch.setattr(measuring, "lay_out", lambda settings, image, say, **budget: 0.0)
    monkeypatch.setattr(measuring, "age_cache", lambda *arguments, **options: 0.0)
    monkeypatch.setattr(measuring, "measure_in", lambda *arguments, **stopping: disturbed.wrap(machine.measure))
    return disturbed


def command(directory, output, *more):
    return ["scale", "--directory", str(directory), "-o", str(output), "--budget", "120s", *more]


def fill_up(directory: Path) -> None:
    """Until not a byte more fits in."""
    filled = subprocess.run(["cp", "/dev/zero", directory / "filler"], capture_output=True, text=True, check=False)
    assert "No space left on device" in filled.stderr
