# SPDX-License-Identifier: Apache-2.0
"""The files of a self-scaling benchmark: that all points find theirs; what is told, and when, on a slow disk."""

from types import SimpleNamespace

import pytest

import characterize
from characterize.errors import FlextraceError
from characterize.layout import RecordKind
from flextrace.runs import measuring
from selfscale.explore import Exploration
from selfscale.exploring.plan import Settings, files_bytes
from selfscale.exploring.sampling import random_workload
from tests.formulas.synthetic_machine import MIB, Machine

pytestmark = pytest.mark.parallel

BYTES_PER_S = 10 * MIB
SETTINGS = Settings(128 * MIB, budget_s=600.0, cpus=2)


@pytest.fixture
def disk(monkeypatch):
    """Sizes of its files by their numbers."""
    sizes, now = {}, [0.0]

    def prepare(trace, image):
        files = characterize.open(trace).arrays[RecordKind.FILE]
        for file, size in zip(files["file"].tolist(), files["size_bytes"].tolist(), strict=True):
            there = sizes.setdefault(file, 0)
            sizes[file] = max(there, size)
            now[0] += (sizes[file] - there) / BYTES_PER_S

    monkeypatch.setattr("replayer.run.prepare", prepare)
    monkeypatch.setattr(measuring, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return sizes


def test_files_of_every_workload_are_laid_out_and_the_rest_of_their_time_is_told(disk, tmp_path):
    said = []
    whole_s = SETTINGS.image_bytes / BYTES_PER_S
    assert measuring.lay_out(SETTINGS, tmp_path, said.append, budget_s=200.0) == pytest.approx(whole_s, rel=1e-3)
    assert sum(disk.values()) == pytest.approx(SETTINGS.image_bytes, rel=1e-3)
    assert said[0].startswith("laying out 1.042 GiB in ")
    # After 128 of the 1067 MiB, 12.8 s; at most ten seconds and one part are silent.
    assert said[1] == "128 MiB laid out; ETA 93.9 s"
    assert len(said) > 4


@pytest.mark.parametrize("budget_s", [20.0, 105.0])
def test_what_takes_more_than_the_budget_is_refused_when_a_tenth_of_that_is_gone(disk, tmp_path, budget_s):
    with pytest.raises(FlextraceError, match=r"takes about 1 min 46 s, and the budget is .*: give a larger --budget"):
        measuring.lay_out(SETTINGS, tmp_path, print, budget_s=budget_s)
    believed_s = max(measuring.TOLD_EVERY_S, measuring.TOO_LONG_SHARE * budget_s)
    assert believed_s * BYTES_PER_S < sum(disk.values()) < 2 * believed_s * BYTES_PER_S


def test_what_was_laid_out_for_some_counts_once():
    assert files_bytes([(1, 4.0), (2, 8.0), (1, 8.0)]) == 8.0 + 4.0


def test_layout_holds_every_workload_that_is_explored(monkeypatch):
    monkeypatch.setattr(
        "selfscale.exploring.informative.most_informative",
        lambda profile, generator, count: [random_workload(profile, generator) for _ in range(count)],
    )
    # A border near the end of the range puts the last focal point there as well.
    for random_points, border in ((0, 128 * MIB), (0, 420 * MIB), (10, 128 * MIB)):
        settings = Settings(128 * MIB, 300.0, 2, random_points=random_points)
        machine = Machine([(border, 500e-6)])
        Exploration(settings, machine.measure).run()
        sizes = [0.0] * 64
        for count, unique in settings.layout:
            for file in range(count):
                sizes[file] = max(sizes[file], unique / count)
        assert settings.image_bytes == sum(sizes)
        for step in machine.measured:
            count = int(step.workload.process_num)
            assert all(sizes[file] >= step.workload.unique_bytes / count for file in range(count)), step.workload
