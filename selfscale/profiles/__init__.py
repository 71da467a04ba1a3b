# SPDX-License-Identifier: Apache-2.0
"""Turns a machine's profile, or a table of anybody's measurements, into what can be said of the machine."""
