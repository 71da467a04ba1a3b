# SPDX-License-Identifier: Apache-2.0
"""README.md and the guides: what they name is there, and what they show works."""
