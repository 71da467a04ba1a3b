# SPDX-License-Identifier: Apache-2.0
"""Characterizes traces that are larger than one machine: parts of them on many, whose summaries are merged."""
