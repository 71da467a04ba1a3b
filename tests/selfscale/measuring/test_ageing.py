# SPDX-License-Identifier: Apache-2.0
"""The page cache is brought into the state of one in use before it is measured in."""

from __future__ import annotations

import math

import pytest

from flextrace.runs import measuring
from selfscale.exploring.plan import Settings
from selfscale.measure import Point, measure
from selfscale.measuring import ageing
from selfscale.measuring.access import BUFFERED, Access
from tests.truths.straced import needs_engine

pytestmark = pytest.mark.parallel

MIB = 1 << 20
SETTINGS = Settings(cache_bytes=8 * MIB, budget_s=60.0, cpus=2)


@pytest.fixture
def measured(monkeypatch):
    """What was to be measured, instead of measuring it."""
    calls = []

    def note(workload, image, **options):
        calls.append((workload, image, options))
        return Point(workload, 1e6, 0.0, cost_s=options["max_seconds"] + 1.0)

    monkeypatch.setattr(ageing, "measure", note)
    return calls


@pytest.mark.parametrize(("budget_s", "seconds"), [(math.inf, 10.0), (1800.0, 10.0), (100.0, 4.0)])
def test_single_pages_at_random_of_more_than_the_cache_for_a_share_of_the_budget(measured, tmp_path, budget_s, seconds):
    said = []
    assert measuring.age_cache(SETTINGS, tmp_path, None, BUFFERED, said.append, budget_s=budget_s) == seconds + 1.0
    ((workload, image, options),) = measured
    assert image == tmp_path
    assert workload.unique_bytes == 16 * MIB
    assert (workload.seq_frac, workload.size_mean) == (0.0, 4096.0)
    assert 0 < workload.read_frac < 1
    assert any(workload.process_num == count and workload.unique_bytes <= size for count, size in SETTINGS.layout)
    # To the end, however steady its throughput is.
    assert options["min_seconds"] == options["max_seconds"] == seconds
    assert len(said) == 1


def test_only_where_the_page_cache_takes_part(measured, tmp_path):
    assert measuring.age_cache(SETTINGS, tmp_path, None, Access("direct"), print) == 0.0
    assert measuring.age_cache(SETTINGS, None, None, Access("device", "/dev/none"), print) == 0.0
    assert measured == []


@needs_engine
def test_on_real_files_it_takes_its_time_and_needs_no_others(tmp_path, monkeypatch):
    points = []

    def keep(*arguments, **options):
        points.append(measure(*arguments, **options))
        return points[-1]

    monkeypatch.setattr(ageing, "measure", keep)
    measuring.lay_out(SETTINGS, tmp_path, print)
    laid_out = {path.name: path.stat().st_size for path in tmp_path.glob("f*")}
    cost_s = ageing.age(tmp_path, None, 1.5, print, cache_bytes=SETTINGS.cache_bytes, cpus=SETTINGS.cpus)
    (point,) = points
    # It ends with its last request, which may be done shortly before the end is noticed.
    assert point.elapsed_s > 1.49
    assert cost_s >= point.elapsed_s
    assert point.response_time["read"]["count"] > 0
    assert point.response_time["write"]["count"] > 0
    assert {path.name: path.stat().st_size for path in tmp_path.glob("f*")} == laid_out
