# SPDX-License-Identifier: Apache-2.0
"""Turns a prediction for a warm cache into one with reads that come from the device whatever the cache holds."""

from __future__ import annotations

import math
from collections.abc import Mapping

from characterize.workload import Workload
from selfscale.predict import Predictor
from selfscale.predicting.relative import Estimated


def device_share(extended: Mapping[str, float | None], read_share: float) -> float:
    """Share of all bytes that are read from the device for other reasons than the size of the cache.

    Data that was not in the cache at its first touch (coldFrac), and reads under O_DIRECT (directFrac). Both are not
    known of the same read, so that the larger one is taken: at least so much.

    Parameters
    ----------
    extended : mapping
        Of the trace, `characterize.extended`; what is not known (NaN, None in a document) counts as 0.
    read_share : float
        Read bytes / bytes.
    """
    shares = [extended.get(name) or 0.0 for name in ("coldFrac", "directFrac")]
    return read_share * max(0.0 if math.isnan(share) else share for share in shares)


def knows_device(predictor: Predictor) -> bool:
    """Whether the machine was measured with its cache, and beyond it."""
    return predictor.profile.access.cached and len(predictor.profile.regions) > 1


def with_device_reads(predictor: Predictor, workload: Workload, warm: Estimated, share: float) -> Estimated:
    """A warm prediction with a share of all bytes read at the speed of the region furthest beyond the cache.

    1 / throughput = (1 - share) / warm + share / cold, cold being reads of the largest measured uniqueBytes; that is
    still too high where some of these hit.
    """
    if share <= 0:
        return warm
    largest = predictor.profile.range_of("uniqueBytes")[1]
    cold = predictor.predict(workload.replace(unique_bytes=largest, read_frac=1.0)).estimated

    def mixed(of_warm: float, of_cold: float) -> float:
        return 1 / ((1 - share) / of_warm + share / of_cold)

    return Estimated(mixed(warm.value, cold.value), mixed(warm.low, cold.low), mixed(warm.high, cold.high))
