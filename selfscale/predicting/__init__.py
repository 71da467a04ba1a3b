# SPDX-License-Identifier: Apache-2.0
"""Turns profiles and an application into estimates; says how far off they are, and what they leave out."""
