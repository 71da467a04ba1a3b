# SPDX-License-Identifier: Apache-2.0
"""What benchmarks say of numbers beside their bars, by hand."""

from functools import partial

import numpy as np
import pytest

from tests.bench.findings import Bar, Finding, frame, print_findings
from tests.bench.spread import exactly, spread_of

pytestmark = pytest.mark.parallel


def finding(values, statistic=np.median, bar=None):
    return Finding("row", "what", bar, spread_of(values, statistic), "%")


def test_the_statistic_is_judged_that_is_named():
    values = [2, 4, 6, 8, 50]
    median = finding(values, bar=Bar(6))
    assert (median.measured.value, median.met) == (6, "yes")
    assert 2 <= median.measured.low <= 6 <= median.measured.high <= 50
    worst = finding(values, np.max, Bar(40))
    assert (worst.measured.value, worst.met) == (50, "NO")
    assert finding(values, partial(np.quantile, q=0.75)).measured.value == 8
    for covered, met in ((16, "NO"), (17, "yes"), (19, "yes"), (20, "NO")):
        inside = [100] * covered + [0] * (20 - covered)
        assert finding(inside, np.mean, Bar(95, 85)).met == met


@pytest.mark.parametrize(
    ("bar", "told", "met", "missed"),
    [
        (Bar(5), "<= 5 %", [5, 5.04, -9], [5.06]),
        (Bar(low=5), ">= 5 %", [5, 4.96, 99], [4.94]),
        (Bar(5, -5), "+- 5 %", [-5.04, 5], [-5.06, 5.06]),
        (Bar(95, 85), "85 to 95 %", [85, 95], [84.9, 95.1]),
    ],
)
def test_numbers_are_judged_as_they_are_printed(bar, told, met, missed):
    assert frame([finding([1, 2], bar=bar)])["bar"].tolist() == [told]
    assert {finding([value], bar=bar).met for value in met} == {"yes"}
    assert {finding([value], bar=bar).met for value in [*missed, np.nan]} == {"NO"}


def test_what_was_not_measured_misses_its_bar_and_what_has_none_does_not():
    assert finding([], bar=Bar(5)).met == "NO"
    assert frame([finding([1, 2])])[["bar", "met", "n"]].to_numpy().tolist() == [["none", "-", 2]]


def test_only_what_was_measured_more_than_once_has_a_spread(capsys):
    findings = [
        Finding("once", "it", Bar(1), exactly(0.5), "s"),
        Finding("once in a series", "it", Bar(1), spread_of([0.5]), "s"),
        Finding("thrice", "it", Bar(1), spread_of([0.4, 0.6, 1.2]), "s"),
    ]
    print_findings(findings, {})
    once, series, thrice = (line.split() for line in capsys.readouterr().out.splitlines()[-3:])
    assert once[-3:] == series[-3:] == ["-", "-", "yes"]
    assert thrice[-7:] == ["0.5", "to", "0.9", "0.4", "to", "1.2", "yes"]
