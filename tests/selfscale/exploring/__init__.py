# SPDX-License-Identifier: Apache-2.0
"""Which points are measured."""
