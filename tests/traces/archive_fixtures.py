# SPDX-License-Identifier: Apache-2.0
"""A trace with every record kind, its archive, and the command line."""

import pytest

import characterize
from characterize.layout import RecordKind
from characterize.trace_files.archive import pack
from flextrace.main import main
from tests.traces.archived import full_trace


@pytest.fixture
def cli(capsys):
    """Runs the command line; exit status and standard error."""
    return lambda *words: (main([str(word) for word in words]), capsys.readouterr().err)


@pytest.fixture
def trace(tmp_path):
    made = full_trace(metadata={"command": ["sort", "x"]}, end_monotonic_ns=7, lost={RecordKind.IO: 9})
    return characterize.write(made, tmp_path / "a.iotrace")


@pytest.fixture
def archive(trace, tmp_path):
    pack(trace, tmp_path / "a.parquet")
    return tmp_path / "a.parquet"
