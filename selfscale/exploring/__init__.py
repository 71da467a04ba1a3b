# SPDX-License-Identifier: Apache-2.0
"""Turns a function that measures workloads into a profile: which workloads, in which order, for how long."""
