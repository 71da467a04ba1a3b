# SPDX-License-Identifier: Apache-2.0
"""Compares: an application with its replay, Willy and the prediction, in one table; a replay with its original."""
