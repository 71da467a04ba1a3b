# SPDX-License-Identifier: Apache-2.0
"""Traces and what is said of them."""
