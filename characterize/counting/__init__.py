# SPDX-License-Identifier: Apache-2.0
"""Algorithms that numbers of a trace rest on: distinct keys, histograms, LRU stacks, overlapping intervals."""
