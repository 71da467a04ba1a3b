# SPDX-License-Identifier: Apache-2.0
"""What a new user reads, README.md and the guides in docs/: its commands are understood, and what it names is there."""

import argparse
import re
import shlex

import pytest

from flextrace.main import VERBS, make_parser
from tests.truths.documented import DOCUMENTS, commands
from tests.truths.straced import ROOT

pytestmark = pytest.mark.parallel


def test_the_commands_of_the_documents_are_understood():
    called = [words for document in DOCUMENTS for words in commands(document)]
    assert {"scale", "predict", "rank", "fit", "validate", "compare", "report"} <= {words[0] for words in called}
    for words in called:
        try:
            make_parser(words[0]).parse_args(words)
        except SystemExit:
            pytest.fail(f"flextrace {shlex.join(words)}")


def options(verb):
    parsers = next(
        action for action in make_parser(verb)._actions if isinstance(action, argparse._SubParsersAction)
    ).choices
    return parsers[verb]._actions


@pytest.mark.parametrize("verb", VERBS)
def test_every_option_says_what_it_is(verb):
    assert [action.dest for action in options(verb) if not action.help] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_options_that_a_document_names_are_there(document):
    known = {name for verb in VERBS for action in options(verb) for name in action.option_strings}
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", document.read_text()))
    assert named - known <= {"--reflink"}, "which is of cp"


@pytest.mark.parametrize(
    "document", sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]), ids=lambda path: path.name
)
def test_what_a_document_links_to_is_there(document):
    for target, heading in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", document.read_text()):
        linked = document.parent / target if target else document
        assert linked.exists(), target
        headings = {
            re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
            for title in re.findall(r"^#+ (.*)$", linked.read_text() if linked.is_file() else "", re.MULTILINE)
        }
        assert not heading or heading in headings, f"{target}#{heading}"


def test_decisions_that_documents_name_are_there():
    decisions = ROOT / "docs" / "decisions"
    for document in DOCUMENTS:
        numbers = re.findall(r"(?<=[ (/])0\d{3}(?=[-,)])", document.read_text())
        assert all(list(decisions.glob(f"{number}-*")) for number in numbers), document.name


def test_make_targets_that_documents_name_are_there():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for document in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        named = re.findall(r"(?:`|^    )make ([a-z-]*[a-z])(?![\w*-])", document.read_text(), re.MULTILINE)
        assert set(named) <= targets, document.name
