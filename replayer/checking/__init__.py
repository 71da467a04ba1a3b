# SPDX-License-Identifier: Apache-2.0
"""Turns a trace and the recording of its replay into what was repeated, and whether in order."""
