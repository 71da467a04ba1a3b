# SPDX-License-Identifier: Apache-2.0
"""Measuring a machine and predicting others' workloads on it, by steps."""
