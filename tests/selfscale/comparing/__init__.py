# SPDX-License-Identifier: Apache-2.0
"""Predictions beside replays, replays beside their originals."""
