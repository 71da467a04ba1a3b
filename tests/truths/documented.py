# SPDX-License-Identifier: Apache-2.0
"""What a new user reads, README.md and the guides in docs/, and the commands and the Python that these show."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path

from tests.truths.straced import ROOT

GUIDES = [ROOT / f"docs/{name}.md" for name in ("recording", "characterizing", "replaying", "predicting", "formats")]
DOCUMENTS = [ROOT / "README.md", *GUIDES]


def commands(document: Path) -> Iterator[list[str]]:
    """Words of every call of flextrace in a block of commands, without its comment."""
    text = re.sub(r"\\\n", " ", document.read_text())
    for line in re.findall(r"^    (.*)$", text, re.MULTILINE):
        for part in re.split(r"&&|;", re.sub(r"\$\([^)]*\)", "1", line)):
            words = shlex.split(part, comments=True) if "flextrace " in part else []
            words = words[1:] if words[:1] == ["sudo"] else words
            if words[:1] == ["flextrace"]:
                yield words[1:]


def program(document: Path) -> str:
    """The block of Python, which begins with an import."""
    found = re.search(r"^    import .*\n(?:(?:    .*)?\n)*", document.read_text(), re.MULTILINE)
    assert found, document
    return textwrap.dedent(found[0])
