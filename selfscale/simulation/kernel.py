# SPDX-License-Identifier: Apache-2.0
"""How functions of the simulations that allocate nothing are compiled: without counting references to arrays.

Their state is tuples of arrays. numba counts who holds each of them at every access to a tuple, with atomic
instructions, which took two thirds of the time (numba #2345 names this switch). Whoever calls from Python holds the
arrays for as long as it runs.
"""

from __future__ import annotations

import numba

from characterize.kernel_start import start_kernels

start_kernels()

kernel = numba.njit(cache=True, nogil=True, _nrt=False)  # type: ignore[call-overload]
