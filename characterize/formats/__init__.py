# SPDX-License-Identifier: Apache-2.0
"""Traces of other tools: each module of one format's name reads it; registry.py knows them, foreign.py drives them."""
