# SPDX-License-Identifier: Apache-2.0
"""What is concluded from a machine's points."""
