# SPDX-License-Identifier: Apache-2.0
"""A comparison of a replay with its original counts for as much of the trace as was compared."""

from __future__ import annotations

import pytest

from characterize.layout import Fileop, RecordKind
from selfscale.comparing.fidelity_text import fidelity_lines
from selfscale.reporting.fidelity_report import fidelity_section
from tests.traces.made_trace import made_trace, read
from tests.traces.replayed import fidelity_of, replayed, result
from tests.truths.straced import op

pytestmark = pytest.mark.parallel

PAGE = 4096


def test_how_much_of_the_trace_was_compared_decides_the_trust():
    """200 reads, of which a replay leaves out some: up to 1 % of them takes nothing away."""
    trace = made_trace([read(PAGE * at, PAGE, 100 * at, 40) for at in range(200)], files=[{"file": 1}])
    for missing, trustworthy in ((0, True), (2, True), (3, False), (197, False)):
        recording = replayed(trace)
        recording.arrays[RecordKind.IO] = recording.arrays[RecordKind.IO][: 200 - missing]
        fidelity = fidelity_of(trace, recording, result(trace))
        assert fidelity["trustworthy"] is trustworthy, missing
        assert fidelity["order"]["share"] == pytest.approx(1 - missing / 200)
        text = " ".join(" ".join(fidelity_lines({"fidelity": fidelity})).split())
        assert f"{200 - missing} of 200 operations that a replay repeats ({1 - missing / 200:.2%}) were found" in text
        assert trustworthy == (fidelity["reasons"] == [])
    assert "only 3 of 200 operations that a replay repeats were compared (1.50%)" in fidelity["reasons"][0]


def test_closes_of_what_is_not_open_are_not_missing():
    """The engine finds out when it runs that there is nothing to be closed: the recording has none of them."""
    closes = [op(Fileop.CLOSE, 9000 + at) for at in range(5)]
    trace = made_trace([read(PAGE, PAGE, 100, 40)], fileops=closes, files=[{"file": 1}])
    recording = replayed(trace)
    recording.arrays[RecordKind.FILEOP] = recording.arrays[RecordKind.FILEOP][:0]
    fidelity = fidelity_of(trace, recording, result(trace, skipped_reasons={"shared_descriptor": 3, "not_open": 2}))
    assert (fidelity["order"]["share"], fidelity["order"]["closes_of_nothing"], fidelity["reasons"]) == (1, 5, [])
    fidelity = fidelity_of(trace, recording, result(trace, skipped_reasons={"shared_descriptor": 3, "late": 2}))
    assert (fidelity["order"]["share"], fidelity["trustworthy"]) == (pytest.approx(1 / 3), False)


def test_closes_that_cannot_be_told_apart_are_not_missing_and_are_told():
    """The engine skips the first of two closes: which one it did its recording does not say."""
    fileops = [op(Fileop.OPEN, 50), op(Fileop.CLOSE, 9000), op(Fileop.CLOSE, 9010)]
    trace = made_trace([read(PAGE, PAGE, 100, 40)], fileops=fileops, files=[{"file": 1}])
    recording = replayed(trace)
    recording.arrays[RecordKind.FILEOP] = recording.arrays[RecordKind.FILEOP][[0, 2]]
    fidelity = fidelity_of(trace, recording, result(trace, skipped_reasons={"shared_descriptor": 1}))
    order = fidelity["order"]
    assert (order["compared"], order["ambiguous"], order["share"], fidelity["reasons"]) == (2, 1, 1, [])
    text = " ".join(" ".join(fidelity_lines({"fidelity": fidelity})).split())
    assert "3 of 3 operations that a replay repeats (100.00%) were found" in text
    assert "note: 1 opens and closes were not checked" in text


def test_a_comparison_of_nothing_is_not_trusted():
    empty = made_trace()
    fidelity = fidelity_of(empty, replayed(empty), result(empty))
    assert (fidelity["trustworthy"], fidelity["order"]["share"]) == (False, None)
    assert any("nothing was compared" in reason for reason in fidelity["reasons"])


def test_the_report_says_why_a_comparison_is_not_trusted():
    empty = made_trace()
    document = result(empty)
    section = fidelity_section(1, document | {"fidelity": fidelity_of(empty, replayed(empty), document)})
    assert any(sentence.startswith("Not trustworthy: nothing was compared") for sentence in section.sentences)
