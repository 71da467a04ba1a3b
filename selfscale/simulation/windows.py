# SPDX-License-Identifier: Apache-2.0
"""Turns the size of a read, or of the last window, into how much is read ahead: mm/readahead.c, in pages."""

from __future__ import annotations

from selfscale.simulation.kernel import kernel


@kernel
def first_window(need, most):
    """get_init_ra_size."""
    window = 1
    while window < need:
        window *= 2
    if window <= most // 32:
        return window * 4
    return window * 2 if window <= most // 4 else most


@kernel
def next_window(window, most):
    """get_next_ra_size."""
    return window * 4 if window < most // 16 else min(window * 2, most)
