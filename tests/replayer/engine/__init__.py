# SPDX-License-Identifier: Apache-2.0
"""The replay engine: files, order, times, caches, disks, its result."""
