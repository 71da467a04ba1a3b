# SPDX-License-Identifier: Apache-2.0
"""Benchmarks: they print figures (ratios against a peer of the same run), and never pass or fail."""
