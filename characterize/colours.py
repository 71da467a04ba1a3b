# SPDX-License-Identifier: Apache-2.0
"""Turns what is drawn into a colour: the same in every figure, of reports and of notebooks, on white and on black."""

READ, WRITE, SYNC, LINE, REGION = "#3a8fd9", "#e07b28", "#9a6fd0", "#2f9e7c", "#8a8f98"
