# SPDX-License-Identifier: Apache-2.0
"""Points that are measured for a moment and charged what they cost on an idle machine; laying out is for nothing.

How many a budget pays for, and whether predictions may rest on them, so does not depend on who else works here.
"""

from dataclasses import replace

import pytest

from flextrace.runs import measuring
from selfscale.measure import measure

RUN_S, CHARGED_S = 0.3, 1.0


@pytest.fixture
def brief_points(monkeypatch):
    def brief(*arguments, min_seconds, max_seconds, **options):
        run_s = min(RUN_S, max_seconds)
        point = measure(*arguments, min_seconds=min(min_seconds, run_s / 2), max_seconds=run_s, **options)
        width = 0.02 * point.throughput_bytes_per_s
        known = {"ci95_half_width_bytes_per_s": width, "cost_s": CHARGED_S, "elapsed_s": CHARGED_S - 0.2}
        return replace(point, steady=True, reason="", **known)

    lay_out = measuring.lay_out
    monkeypatch.setattr(measuring, "lay_out", lambda settings, image, say, **_budget: 0 * lay_out(settings, image, say))
    monkeypatch.setattr("selfscale.measure.measure", brief)
