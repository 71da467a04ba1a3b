# SPDX-License-Identifier: Apache-2.0
"""Results and progress as lines for a terminal."""
