# SPDX-License-Identifier: Apache-2.0
"""What a replay needs around it: memory groups, processors."""
