# SPDX-License-Identifier: Apache-2.0
"""The comparison table: errors by hand, and conditions that differ are marked."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from characterize.errors import FlextraceError
from characterize.workload import Workload
from selfscale.comparing.comparison import (
    SCHEMA,
    Comparison,
    Row,
    comparison_document,
    little_response_time_ns,
    load,
    mark_differences,
    sample_of,
)
from tests.formulas.synthetic_machine import MIB
from tests.traces.replay_result import result

pytestmark = pytest.mark.parallel

WORKLOAD = Workload(unique_bytes=8 * MIB, seq_frac=0.5, read_frac=0.5, size_mean=4096, process_num=1)


def row(name: str, *documents: dict[str, Any], limit: int | None = 128 * MIB, cold: float | None = 0.0) -> Row:
    return Row(
        name, name, "made by hand", WORKLOAD, [sample_of(document) for document in documents], limit, cold, "as said"
    )


def test_a_sample_holds_the_means_by_hand() -> None:
    sample = sample_of(result())
    assert sample["mean_ns"] == pytest.approx((300 * 20e3 + 100 * 10e3) / 400)
    assert sample["sync_per_request_ns"] == pytest.approx(0.5e9 / 400)
    assert sample["throughput_bytes_per_s"] == 50e6


def test_a_sample_without_writes_has_no_write_time() -> None:
    document = result()
    document["response_time"]["write"] = {"count": 0, "mean_ns": None}
    sample = sample_of(document)
    assert sample["write_mean_ns"] is None
    assert sample["mean_ns"] == 20e3
    assert sample_of({})["mean_ns"] is None


def test_errors_are_of_the_median_against_the_application() -> None:
    rows = [row("application", result()), row("willy", *(result(throughput=value) for value in (130e6, 90e6, 125e6)))]
    document = comparison_document(rows, ("application", "willy"), trace="t")
    assert document["schema"] == SCHEMA
    willy = document["rows"][1]
    assert willy["median"]["throughput_in_io_bytes_per_s"] == 125e6
    assert (willy["low"]["throughput_in_io_bytes_per_s"], willy["high"]["throughput_in_io_bytes_per_s"]) == (
        90e6,
        130e6,
    )
    assert willy["error"]["throughput_in_io_bytes_per_s"] == pytest.approx(0.25)
    assert willy["error"]["read_mean_ns"] == 0
    assert document["rows"][0]["error"] == dict.fromkeys(document["columns"])
    table = Comparison(document).table
    assert table.loc["willy", "error_throughput_bytes_per_s"] == pytest.approx(0.25)
    assert math.isnan(table.loc["application", "error_mean_ns"])
    json.dumps(document, allow_nan=False)


def test_table_3_2_of_the_thesis() -> None:
    """Sort: 0.20 MB/s, 19.7, 1.6 and 11.7 ms; Willy: 0.20 MB/s, 20.0, 1.9 and 11.0 ms."""
    sort = row("application")
    sort.samples = [
        {"throughput_in_io_bytes_per_s": 0.2e6, "read_mean_ns": 19.7e6, "write_mean_ns": 1.6e6, "mean_ns": 11.7e6}
    ]
    willy = row("willy")
    willy.samples = [
        {"throughput_in_io_bytes_per_s": 0.2e6, "read_mean_ns": 20e6, "write_mean_ns": 1.9e6, "mean_ns": 11e6}
    ]
    error = comparison_document([sort, willy], ())["rows"][1]["error"]
    assert error["throughput_in_io_bytes_per_s"] == 0
    assert error["read_mean_ns"] == pytest.approx(0.0152, abs=1e-4)
    assert error["write_mean_ns"] == pytest.approx(0.1875, abs=1e-4)
    assert error["mean_ns"] == pytest.approx(-0.0598, abs=1e-4)
    assert error["sync_per_request_ns"] is None


def test_littles_law() -> None:
    """0.2 MB/s of 4 KB requests by one process: 20 ms each (thesis 3.4.2); by four processes 80 ms."""
    workload = WORKLOAD.replace(size_mean=4000)
    assert little_response_time_ns(workload, 0.2e6) == pytest.approx(20e6)
    assert little_response_time_ns(workload.replace(process_num=4), 0.2e6) == pytest.approx(80e6)
    assert little_response_time_ns(workload, 0) is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"limit": 256 * MIB}, "memory limit 256 MiB, the application had 128 MiB"),
        ({"limit": None}, "memory limit none, the application had 128 MiB"),
        ({"cold": 0.6}, "60% of its read bytes cold, the application had 0%"),
        ({"cold": None}, "was not measured"),
    ],
)
def test_other_conditions_than_the_applications_are_said(change: dict[str, Any], words: str) -> None:
    rows = [row("application", result()), row("replay", result(), **change)]
    mark_differences(rows)
    document = comparison_document(rows, ("replay",))
    assert not document["trustworthy"]
    assert not document["rows"][1]["trustworthy"]
    assert words in document["reasons"][0]


def test_equal_conditions_are_trusted_and_the_thesis_warm_start_marks_only_itself() -> None:
    rows = [
        row("application", result(), cold=0.5),
        row("replay", result(), cold=0.48),
        row("willy", result(), cold=0.0),
    ]
    mark_differences(rows)
    document = comparison_document(rows, ("application", "replay"))
    assert document["trustworthy"]
    assert [one["trustworthy"] for one in document["rows"]] == [True, True, False]


def test_load_refuses_other_documents(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(json.dumps(comparison_document([row("application", result())], ())))
    assert load(path).table.loc["application", "read_mean_ns"] == 20e3
    path.write_text('{"schema": "flextrace.profile/1"}')
    with pytest.raises(FlextraceError, match="not a comparison"):
        load(path)
    path.write_text("nonsense")
    with pytest.raises(FlextraceError, match="no JSON"):
        load(path)
    with pytest.raises(FlextraceError, match="cannot read"):
        load(tmp_path / "missing")
