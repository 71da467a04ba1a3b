# SPDX-License-Identifier: Apache-2.0
"""`flextrace validate` of a profile whose machine is a formula, and may be interrupted; its documents are real."""

import os
import shutil
import signal
from collections import namedtuple

import pytest

from flextrace.runs import measuring
from selfscale.measuring.environment import environment
from selfscale.predict import record_scores
from tests.formulas.explored import explored
from tests.formulas.synthetic_storage import SSD, StorageMachine


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    profile = explored(StorageMachine(**SSD, seed=1), 120.0)
    place = tmp_path_factory.mktemp("validate")
    profile.environment = environment(place, None)
    record_scores(profile)
    profile.save(place / "p.json")
    return profile


@pytest.fixture
def place(made, tmp_path):
    shutil.copy(made.path, tmp_path / "p.json")
    (tmp_path / "d").mkdir()
    return tmp_path


@pytest.fixture
def machine(monkeypatch):
    machine = StorageMachine(**SSD, seed=5, noise=0.05)
    machine.interrupt_at = None

    def step(request):
        if len(machine.measured) == machine.interrupt_at:
            machine.interrupt_at = None
            os.kill(os.getpid(), signal.SIGTERM)
        return machine.measure(request)

    monkeypatch.setattr(measuring, "lay_out", lambda settings, image, say: 0.0)
    monkeypatch.setattr(measuring, "age_cache", lambda *arguments, **options: 0.0)
    monkeypatch.setattr(measuring, "measure_in", lambda *of, **stopping: step)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: namedtuple("Usage", "free")(1 << 50))
    return machine


def command(place, *more):
    return ["validate", str(place / "p.json"), "--workloads", "12", "--directory", str(place / "d"), *more]
