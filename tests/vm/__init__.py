# SPDX-License-Identifier: Apache-2.0
"""Tests on other kernels, in QEMU."""
