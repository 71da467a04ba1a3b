# SPDX-License-Identifier: Apache-2.0
"""Turns parameters, or the distributions of a trace, into the requests of Willy (Chen 1992, section 3.4)."""
