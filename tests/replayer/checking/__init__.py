# SPDX-License-Identifier: Apache-2.0
"""What a replay repeated of its trace, and in which order."""
