# SPDX-License-Identifier: Apache-2.0
"""Numbers to machine profile to predictions (Chen 1992, chapters 4 and 5)."""
