# SPDX-License-Identifier: Apache-2.0
"""Trace to I/O: traces worth running (Willy, flexible traces) and the engine that runs every trace."""
