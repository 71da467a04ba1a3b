# SPDX-License-Identifier: Apache-2.0
"""The options of all verbs: how they are shown, and what an unknown one is answered."""

import argparse

import pytest

from flextrace.main import VERBS, main, make_parser


def test_an_unknown_option_is_answered_with_the_usage_of_its_verb(capsys):
    with pytest.raises(SystemExit) as refused:
        main(["info", "some.iotrace", "--layers", "vfs"])
    assert refused.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("usage: flextrace info ")
    assert said.endswith("flextrace info: error: unrecognized arguments: --layers vfs\n")


@pytest.mark.parametrize("verb", VERBS)
def test_many_options_stand_below_titles(verb):
    (verbs,) = (it for it in make_parser(verb)._actions if isinstance(it, argparse._SubParsersAction))
    untitled = [it for it in verbs.choices[verb]._optionals._group_actions if it.help != argparse.SUPPRESS]
    assert len(untitled) <= 12, [it.option_strings for it in untitled]
