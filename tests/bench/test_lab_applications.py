# SPDX-License-Identifier: Apache-2.0
"""Which of several recordings of an application is predicted from."""

import pytest

from tests.bench import lab_applications
from tests.bench.lab_applications import APPLICATIONS, record_applications

pytestmark = pytest.mark.parallel


@pytest.mark.parametrize(
    ("rates", "kept"),
    [([432.0, 389.0, 302.0], 389.0), ([302.0, 432.0, 389.0], 389.0), ([5.0, 7.0], 5.0), ([3.0], 3.0)],
)
def test_the_recording_of_median_throughput_is_kept(tmp_path, monkeypatch, rates, kept):
    left = iter(rates)

    def record(application, point, memory_bytes, trace):
        rate = next(left)
        trace.write_text(str(rate))
        return {"bytes_per_s": rate}

    monkeypatch.setattr(lab_applications, "record_application", record)
    trace = tmp_path / "sort-disk.iotrace"
    runs = record_applications(APPLICATIONS[0], tmp_path, 1 << 27, trace, runs=len(rates))
    assert [run["bytes_per_s"] for run in runs] == rates
    assert float(trace.read_text()) == kept
    assert list(tmp_path.iterdir()) == [trace]


def test_what_was_recorded_before_an_error_is_not_left(tmp_path, monkeypatch):
    def record(application, point, memory_bytes, trace):
        trace.touch()
        raise KeyboardInterrupt

    monkeypatch.setattr(lab_applications, "record_application", record)
    with pytest.raises(KeyboardInterrupt):
        record_applications(APPLICATIONS[0], tmp_path, 1 << 27, tmp_path / "a.iotrace", runs=2)
    assert not list(tmp_path.iterdir())
