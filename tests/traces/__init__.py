# SPDX-License-Identifier: Apache-2.0
"""Traces that are made, by hand and at random; what other tools write; results and reports of made-up numbers."""
