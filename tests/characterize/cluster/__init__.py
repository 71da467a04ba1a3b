# SPDX-License-Identifier: Apache-2.0
"""Traces in parts, recordings of several machines, worker processes."""
