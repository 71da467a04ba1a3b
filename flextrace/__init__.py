# SPDX-License-Identifier: Apache-2.0
"""The command line: one module per verb."""

EXIT_INTERRUPTED = 130
