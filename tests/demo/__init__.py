# SPDX-License-Identifier: Apache-2.0
"""The driver of ``make demo`` and the inputs of its applications."""
