# SPDX-License-Identifier: Apache-2.0
"""Hypothesis searches at random on a developer's machine; in CI the same code gives the same result."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")
