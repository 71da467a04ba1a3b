# SPDX-License-Identifier: Apache-2.0
"""What is told: results and progress as lines for a terminal, and the streams that take them."""
