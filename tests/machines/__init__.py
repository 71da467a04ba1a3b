# SPDX-License-Identifier: Apache-2.0
"""Disks, file systems, groups, places and settings of this host, for as long as a test needs them."""
