# SPDX-License-Identifier: Apache-2.0
"""Every verb that makes something of a trace which lacks records makes it, says so, and ends with 3."""

import pytest

import characterize
from characterize.layout import HeaderFlag, RecordKind
from characterize.workload import Workload
from flextrace.main import main
from replayer.willy import make_trace
from selfscale.explore import Exploration
from selfscale.exploring.plan import Settings
from tests.formulas.synthetic_machine import MIB, Machine

pytestmark = pytest.mark.parallel

VERBS = {
    "characterize": ("{trace}",),
    "predict": ("{profile}", "--trace", "{trace}", "--model", "product"),
    "rank": ("{trace}", "{profile}", "--model", "product"),
    "alter": ("{trace}", "--read-frac", "0.5", "-o", "{made}"),
    "cut": ("{trace}", "--path", "*", "-o", "{made}"),
    "merge": ("{trace}", "{trace}", "-o", "{made}"),
    "repeat": ("{trace}", "--times", "2", "-o", "{made}"),
    "clone": ("{trace}", "--copies", "2", "-o", "{made}"),
    "export": ("{trace}", "-o", "{archive}"),
    "report": ("--trace", "{trace}", "-o", "{page}"),
}


@pytest.fixture(scope="module")
def profile(tmp_path_factory):
    exploration = Exploration(Settings(64 * MIB, 60.0, 2), Machine([(64 * MIB, 500e-6)]).measure)
    exploration.run()
    path = tmp_path_factory.mktemp("profile") / "p.json"
    exploration.profile().save(path)
    return path


@pytest.fixture(scope="module", params=[True, False], ids=["lossy", "whole"])
def trace(request, tmp_path_factory):
    made = make_trace(Workload(20 * MIB, 0.25, 0.75, 8192.0, 2.0), requests=3000)
    if request.param:
        made.header.lost, made.header.flags = {RecordKind.IO: 3}, made.header.flags | HeaderFlag.LOST
    return characterize.write(made, tmp_path_factory.mktemp("trace") / "t.iotrace"), request.param


@pytest.mark.parametrize("verb", VERBS)
def test_a_trace_that_lacks_records_is_used_and_told(verb, trace, profile, tmp_path, capsys):
    path, lossy = trace
    made = tmp_path / "made.iotrace"
    archive = tmp_path / "made.parquet"
    page = tmp_path / "page.html"
    places = {"trace": path, "profile": profile, "made": made, "archive": archive, "page": page}
    words = [word.format(**places) for word in VERBS[verb]]
    assert main([verb, *words]) == (3 if lossy else 0)
    told = capsys.readouterr()
    assert ("lost while recording" in (told.out + told.err).lower()) == lossy
    if str(made) in words:
        assert characterize.open(made).header.complete != lossy
    if str(archive) in words:
        assert main(["import", str(archive), "-o", str(made)]) == (3 if lossy else 0)
        assert ("lost while recording" in capsys.readouterr().err) == lossy
        assert main(["export", str(archive), "-o", str(tmp_path / "made.csv")]) == (3 if lossy else 0)
