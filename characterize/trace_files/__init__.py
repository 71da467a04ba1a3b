# SPDX-License-Identifier: Apache-2.0
"""Turns traces into files and archives, and files into what they say of themselves."""
