# SPDX-License-Identifier: Apache-2.0
"""Turns a workload into a point: how requests reach storage, what the cache begins with, when a run may stop."""
