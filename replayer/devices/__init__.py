# SPDX-License-Identifier: Apache-2.0
"""Turns a trace into operations on one block device."""
