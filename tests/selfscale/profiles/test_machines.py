# SPDX-License-Identifier: Apache-2.0
"""Several profiles side by side as Chen & Patterson 1994 compare machines, against hand calculation."""

import math
from pathlib import Path

import pytest

from characterize.workload import FIELD_OF, Workload
from selfscale.measure import Point
from selfscale.measuring.access import Access
from selfscale.profile import Profile, Region
from selfscale.profiles import machines
from selfscale.reporting.machines_figures import machines_figures

pytestmark = pytest.mark.parallel

KIB, MIB = 1024, 2**20


def machine(name, factor=1.0, regions=2, border=True):
    """MB/s at the focal point 100 in the cache and 10 on disk; curves of sizeMean and readFrac around it."""
    points, areas = [], []
    for index in range(regions):
        speed = factor * 1e6 * (1, 0.1)[index]
        focal = Workload((40 + 160 * index) * MIB, 0.5, 0.5, 16.0 * KIB, 1.0)
        areas.append(Region(*((10 * MIB, 100 * MIB), (100 * MIB, 400 * MIB))[index], focal))
        points.append(Point(focal, 100 * speed, 4 * speed, role="curve"))
        for parameter, values in {
            "sizeMean": {8 * KIB: 50, 64 * KIB: 300},
            "readFrac": {0.0: 80, 1.0: 120},
        }.items():
            for value, throughput in values.items():
                workload = focal.replace(**{FIELD_OF[parameter]: float(value)})
                points.append(Point(workload, throughput * speed, speed, role="curve"))
    return Profile(
        measured=points,
        regions=areas,
        boundaries_bytes=[100.0 * MIB] if border else [],
        environment={"memory_limit_bytes": 128 * MIB, "memory_bytes": 1024 * MIB},
        path=Path(f"/somewhere/{name}.json"),
    )


def test_cache_sizes_are_of_the_memory_group_else_of_the_memory():
    whole = machine("whole")
    whole.environment["memory_limit_bytes"] = None
    data = machines.cache_sizes([machine("group"), whole, machine("none", border=False)])
    assert data["machine"].tolist() == ["group", "whole", "none"]
    assert data["share"].tolist()[:2] == pytest.approx([100 / 128, 100 / 1024])
    assert math.isnan(data["cache_bytes"][2])


def test_a_device_without_a_file_cache_has_none_in_the_figures():
    raw = machine("raw")
    raw.settings = {"access": Access("device", "/dev/x").as_document()}
    assert math.isnan(machines.cache_sizes([raw])["cache_bytes"][0])
    assert machines.by_read_share([raw]).empty
    assert machines.at_focal_points([raw])["level"].tolist() == ["device, region 1", "device, region 2"]
    assert set(machines.by_read_share([raw, machine("a")])["machine"]) == {"a"}


def test_throughput_at_the_focal_points():
    data = machines.at_focal_points([machine("a"), machine("b", 3.0)])
    assert data["level"].tolist() == ["file cache", "disk"] * 2
    assert data["bytes_per_s"].tolist() == pytest.approx([1e8, 1e7, 3e8, 3e7])
    assert data["half_width_95_bytes_per_s"].tolist() == pytest.approx([4e6, 4e5, 12e6, 12e5])
    assert data["uniqueBytes"].tolist() == [40 * MIB, 200 * MIB] * 2


def test_reads_are_taken_to_the_common_size_as_the_paper_does():
    data = machines.reads_of_common_size([machine("a")])
    # 32 KiB is halfway between 16 and 64 KiB on a logarithmic axis: (100 + 300) / 2 over 100.
    assert data["size_multiplier"].tolist() == pytest.approx([2.0, 2.0])
    assert data["reads_bytes_per_s"].tolist() == pytest.approx([120e6, 12e6])
    assert data["common_size_bytes_per_s"].tolist() == pytest.approx([240e6, 24e6])
    shares = machines.by_read_share([machine("a")])
    assert shares["readFrac"].tolist() == [0.0, 0.5, 1.0]
    assert shares["bytes_per_s"].tolist() == pytest.approx([160e6, 200e6, 240e6])


def test_a_curve_that_ends_before_the_common_size_gives_no_number():
    small = machine("small")
    small.measured = [point for point in small.measured if point.workload.size_mean < 32 * KIB]
    assert machines.reads_of_common_size([small])["common_size_bytes_per_s"].isna().all()
    titles = [figure.title for figure in machines_figures([small, machine("a")])]
    reads = next(figure for figure in machines_figures([small, machine("a")]) if figure.title == "Reads of 32 KiB")
    assert "small file cache, small disk" in reads.note
    assert len(titles) == 5


def test_figures_draw_what_the_tables_say():
    profiles = [machine("slow"), machine("fast", 3.0), machine("one", regions=1, border=False)]
    figures = {figure.title: figure for figure in machines_figures(profiles)}
    cache = figures["Size of the file cache"]
    assert cache.plot.data[0].y == pytest.approx([100 * 100 / 128] * 2)
    assert list(cache.plot.data[1].y) == [100 * MIB] * 2
    assert cache.plot.layout.yaxis.title.text == "percent of the memory"
    assert cache.plot.layout.yaxis2.title.text == "size of the file cache"
    assert "one" in cache.note
    reads = {trace.name: trace for trace in figures["Reads of 32 KiB"].plot.data}
    assert list(reads["file cache"].x) == ["fast", "slow"]
    assert reads["file cache"].y == pytest.approx([720.0, 240.0])
    assert reads["disk"].y == pytest.approx([72.0, 24.0])
    focal = {trace.name: trace for trace in figures["Throughput at the focal points"].plot.data}
    assert focal["only region"].y == pytest.approx([100.0])
    assert focal["disk"].error_y.array == pytest.approx([0.4, 1.2])


def test_a_profile_that_has_no_region_yet_does_not_hinder_the_others():
    unfinished = machine("unfinished")
    unfinished.regions, unfinished.boundaries_bytes = [], []
    assert len(machines_figures([unfinished, machine("a")])) == 5
    assert machines_figures([unfinished, unfinished]) == []


def test_names_are_all_different():
    assert machines.names_of([machine("a"), machine("b"), machine("a")]) == ["a (1)", "b", "a (2)"]
