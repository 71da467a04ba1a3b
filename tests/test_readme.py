# SPDX-License-Identifier: Apache-2.0
"""What a new user reads first: the commands of the README are understood, and every option says what it is."""

import argparse
import re
import shlex
from pathlib import Path

import pytest

from flextrace.main import VERBS, make_parser

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def commands():
    """Words of every call of flextrace in a block of commands, without its comment."""
    text = re.sub(r"\\\n", " ", README)
    for line in re.findall(r"^    (.*)$", text, re.MULTILINE):
        for part in re.split(r"&&|;", re.sub(r"\$\([^)]*\)", "1", line)):
            words = shlex.split(part, comments=True) if "flextrace " in part else []
            words = words[1:] if words[:1] == ["sudo"] else words
            if words[:1] == ["flextrace"]:
                yield words[1:]


def test_the_commands_of_the_readme_are_understood():
    called = list(commands())
    assert {"scale", "predict", "rank", "fit", "validate", "compare", "report"} <= {words[0] for words in called}
    for words in called:
        try:
            make_parser(words[0]).parse_args(words)
        except SystemExit:
            pytest.fail(f"README: flextrace {shlex.join(words)}")


def options(verb):
    parsers = next(
        action for action in make_parser(verb)._actions if isinstance(action, argparse._SubParsersAction)
    ).choices
    return parsers[verb]._actions


@pytest.mark.parametrize("verb", VERBS)
def test_every_option_says_what_it_is(verb):
    assert [action.dest for action in options(verb) if not action.help] == []


def test_options_and_decisions_that_the_readme_names_are_there():
    known = {name for verb in VERBS for action in options(verb) for name in action.option_strings}
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", README))
    assert named - known == {"--reflink"}, "which is of cp"
    decisions = ROOT / "docs" / "decisions"
    assert all(list(decisions.glob(f"{number}-*")) for number in re.findall(r"decisions/(\d{4})", README))
