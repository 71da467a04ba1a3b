# SPDX-License-Identifier: Apache-2.0
"""Traces on one block device."""
