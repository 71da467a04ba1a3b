# SPDX-License-Identifier: Apache-2.0
"""All that is said of a trace, for comparisons of ways to find it."""

from characterize.characterization import Characterization
from characterize.document import plain


def document(result: Characterization) -> dict:
    """The whole document; its input's path apart."""
    return plain({**result.as_document(), "input": None})
