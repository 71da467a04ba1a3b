# SPDX-License-Identifier: Apache-2.0
"""Tests, each in the folder of what it tests; and what they share, by what it is of."""
