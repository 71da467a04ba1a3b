# SPDX-License-Identifier: Apache-2.0
"""Turns a trace into a flexible trace (Chen 1992, 6.2): one file per parameter that changes it and holds the others."""
