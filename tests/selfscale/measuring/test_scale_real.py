# SPDX-License-Identifier: Apache-2.0
"""Real measurements of a small machine: points, a profile, the cache of a memory group."""

import json
import os
from pathlib import Path

import pytest

from characterize.errors import FlextraceError
from characterize.workload import Workload
from flextrace.main import main
from flextrace.runs import measuring
from replayer.run import replay
from replayer.running.confine import MemoryGroup
from selfscale.explore import Exploration
from selfscale.exploring.plan import Settings
from selfscale.measure import measure
from selfscale.measuring.access import BUFFERED
from selfscale.profile import Profile
from selfscale.profiles.conclusions import file_cache_bytes
from tests.formulas.synthetic_machine import MIB
from tests.truths.straced import needs_engine

PREDICT = ["--unique-bytes", "4M", "--seq-frac", "0.5", "--read-frac", "1", "--size-mean", "16K", "--process-num", "1"]

pytest_plugins = ["tests.formulas.brief_points"]
pytestmark = needs_engine


@pytest.mark.usefixtures("brief_points")
def test_small_real_profile(tmp_path):
    """Everything but the confinement: trace, engine, stop rule, exploration, on a cache size that is only assumed."""
    image = tmp_path / "image"
    image.mkdir()
    settings = Settings(cache_bytes=8 * MIB, budget_s=12.0, cpus=1)
    measuring.lay_out(settings, image, print)
    used = {path.name: path.stat().st_size for path in image.glob("f*")}
    assert sum(used.values()) == pytest.approx(settings.image_bytes, rel=0.01)
    exploration = Exploration(settings, measuring.measure_in(image, None, BUFFERED))
    exploration.run()
    profile = exploration.profile()
    assert len(profile.measured) >= 7
    assert {path.name: path.stat().st_size for path in image.glob("f*")} == used  # no point needed more or other files
    for point in profile.measured:
        assert point.throughput_bytes_per_s > 0
        assert point.passes > 0
        assert point.response_time["read"]["count"] + point.response_time["write"]["count"] > 0
    path = profile.save(tmp_path / "p.json")
    assert main(["predict", str(path), *PREDICT]) == 0


def test_a_real_point_begins_with_what_a_cache_holds_of_its_files(tmp_path, monkeypatch):
    monkeypatch.setattr("selfscale.measure.cache_limit_bytes", lambda limit: 1 * MIB)
    documents = []

    def kept(*arguments, **options):
        documents.append(replay(*arguments, **options))
        return documents[-1]

    measure(Workload(4 * MIB, 0.5, 1.0, 16384.0, 2.0), tmp_path / "image", max_seconds=0.3, replay=kept)
    assert documents[-1]["image"]["cache_wanted_bytes"] == 1 * MIB


def test_reads_and_writes_of_a_real_point_are_as_asked(tmp_path):
    point = measure(Workload(4 * MIB, 0.5, 0.75, 16384.0, 2.0), tmp_path / "image", max_seconds=0.6, min_seconds=0.2)
    reads, writes = (point.response_time[name]["count"] for name in ("read", "write"))
    assert reads / (reads + writes) == pytest.approx(0.75, abs=0.02)
    assert 0 < point.elapsed_s <= point.cost_s


@pytest.mark.root
@pytest.mark.usefixtures("brief_points")
def test_boundary_is_the_limit_of_the_memory_group(tmp_path):
    """With --memory the effective size of the page cache that is found is within 15 % of the limit."""
    try:
        with MemoryGroup(128 * MIB):
            pass
    except FlextraceError as error:
        pytest.skip(str(error))
    output = tmp_path / "p.json"
    place = Path(os.environ.get("FLEXTRACE_TEST_DIRECTORY", tmp_path))
    arguments = ["scale", "--directory", str(place), "-o", str(output), "--memory", "128M", "--budget", "30s"]
    assert main(arguments) in {0, 3}
    profile = Profile.load(output)
    assert file_cache_bytes(profile) == pytest.approx(128 * MIB, rel=0.15)
    assert profile.environment["memory_limit_bytes"] == 128 * MIB
    cached, disk = profile.regions[0], profile.regions[-1]
    assert cached.high_bytes <= disk.low_bytes
    assert json.loads(output.read_text())["schema"] == "flextrace.profile/1"
