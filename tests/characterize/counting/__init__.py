# SPDX-License-Identifier: Apache-2.0
"""Counters that traces are characterized with: stack depths, histograms."""
