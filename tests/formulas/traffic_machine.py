# SPDX-License-Identifier: Apache-2.0
"""A machine that is the formula of the page cache's traffic, its regions, and points that were measured of it."""

import random

import numpy as np

from characterize.workload import Workload
from selfscale.exploring.sampling import random_workload
from selfscale.measure import Point
from selfscale.models.measured import columns
from selfscale.models.traffic_time import CONSTANTS, CacheLimits, TrafficTimes
from selfscale.profile import Profile, Region
from selfscale.simulation.read_ahead_rules import ReadAheadRules
from tests.formulas.synthetic_machine import MIB

CACHE = 128 * MIB
LIMITS = CacheLimits(CACHE, 0.2 * CACHE, ReadAheadRules(32, 320, large_folios=True))
ENVIRONMENT = {"cache_limit_bytes": CACHE, "read_ahead_bytes": 128 * 1024, "dirty_limit_bytes": int(0.2 * CACHE)}
FOCAL = Workload(16 * MIB, 0.5, 0.5, 16384.0, 2.0)
REGIONS = [Region(8 * MIB, CACHE, FOCAL), Region(CACHE, 512 * MIB, FOCAL.replace(unique_bytes=300 * MIB))]
SPACE = Profile(
    measured=[
        Point(Workload(8 * MIB, 0.0, 0.0, 4096.0, 1.0), 1.0, 0.0),
        Point(Workload(512 * MIB, 1.0, 1.0, 1 << 18, 4.0), 1.0, 0.0),
    ]
)


def machine():
    """A device of 100 us a read, 40 us a write, and 200 MB/s in each direction."""
    changes = {"access_read_s": 4e-4, "access_write_s": 1.6e-4, "device_read_byte_s": 2e-8, "device_write_byte_s": 2e-8}
    changes |= {"direction_servers": 4.0, "device_servers": 8.0, "write_call_s": 4e-6, "read_byte_s": 8e-11}
    values = {name: constant.value for name, constant in CONSTANTS.items()} | changes
    return TrafficTimes(np.log(list(values.values())), np.eye(len(CONSTANTS)), LIMITS)


def workloads(count, seed):
    generator = random.Random(seed)
    return [random_workload(SPACE, generator) for _ in range(count)]


def points(formula, chosen, noise=0.03):
    generator = np.random.default_rng(1)
    throughput = np.exp(formula.at(columns(chosen)).log_throughput + noise * generator.standard_normal(len(chosen)))
    return [
        Point(workload, float(value), 1.96 * noise * float(value), role="inform")
        for workload, value in zip(chosen, throughput, strict=True)
    ]
