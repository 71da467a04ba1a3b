# SPDX-License-Identifier: Apache-2.0
"""Machines that are formulas, and explorations of them: what is found can be compared with the formula."""
