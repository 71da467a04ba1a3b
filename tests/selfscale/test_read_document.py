# SPDX-License-Identifier: Apache-2.0
"""Whatever a file holds in the place of a document, all that read one say which file it is, and what it is instead."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from characterize.anonymise import read_key
from characterize.errors import FlextraceError
from characterize.trace_files import whole_file
from characterize.trace_files.provenance import provenance_of
from selfscale.comparing import comparison, fidelity
from selfscale.predicting import prediction_errors
from selfscale.profile import Profile
from selfscale.profiles.table import read_table

pytestmark = pytest.mark.parallel

VERSIONED = [Profile.load, comparison.load, prediction_errors.load]
RECORDED = {"schema": "flextrace.replay/1", "fidelity": {"schema": "flextrace.fidelity/1"}}


@pytest.mark.parametrize("load", [*VERSIONED, fidelity.load])
@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[" * 200_000], ids=["empty", "cut", "binary", "deep"])
def test_what_is_no_json(tmp_path, load, content):
    path = tmp_path / "document.json"
    path.write_bytes(content)
    with pytest.raises(FlextraceError, match="no JSON document") as caught:
        load(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("load", [*VERSIONED, fidelity.load, read_table, lambda path: read_key(Path(path), None)])
@pytest.mark.parametrize("device", ["/dev/null", "/dev/zero", "/dev/full", "/dev/urandom"])
def test_a_device_is_not_read_to_an_end_that_never_comes(load, device):
    with pytest.raises(FlextraceError, match=f"cannot read .*{device}: it is a device; name a file"):
        load(device)


def test_a_pipe_is_read(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(b'{"schema": "flextrace.profile/9"}',))
    writer.start()
    with pytest.raises(FlextraceError, match="has version 9"):
        Profile.load(path)
    writer.join()


def test_a_pipe_is_no_file_to_wait_for_without_an_end(tmp_path, monkeypatch):
    """As where its writer has failed."""
    monkeypatch.setattr(whole_file, "WRITER_S", 0.01)
    path = tmp_path / "pipe"
    os.mkfifo(path)
    for load in (*VERSIONED, fidelity.load, read_table, lambda path: read_key(path, None)):
        with pytest.raises(FlextraceError, match=f"cannot read .*{path}: it is a pipe into which nobody writes"):
            load(path)
    assert provenance_of(path)["input"] == {"path": str(path), "bytes": None, "sha256": None}


def test_what_a_shell_hands_over_is_read_though_its_writer_has_gone():
    """As by <(...)."""
    output, end = os.pipe()
    os.write(end, b'{"schema": "flextrace.profile/9"}')
    os.close(end)
    with pytest.raises(FlextraceError, match="has version 9"):
        Profile.load(f"/dev/fd/{output}")
    with pytest.raises(FlextraceError, match="nobody writes"):
        Profile.load(f"/dev/fd/{output}")
    os.close(output)


@pytest.mark.parametrize("load", VERSIONED)
@pytest.mark.parametrize("document", [5, [], {}, {"schema": 1}, {"schema": "flextrace.replay/1"}], ids=repr)
def test_another_document(tmp_path, load, document):
    path = tmp_path / "document.json"
    path.write_text(json.dumps(document))
    with pytest.raises(FlextraceError, match=r"is not a \w+ but .*: make one with 'flextrace \w+"):
        load(path)


@pytest.mark.parametrize("load", VERSIONED)
@pytest.mark.parametrize("version", ["2", "x", ""])
def test_a_version_that_is_not_known(tmp_path, load, version):
    path = tmp_path / "document.json"
    name = {Profile.load: "profile", comparison.load: "comparison", prediction_errors.load: "validation"}[load]
    path.write_text(json.dumps({"schema": f"flextrace.{name}/{version}"}))
    with pytest.raises(FlextraceError, match=f"{name} {path} has version {version}, .* use a newer one"):
        load(path)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"schema": "flextrace.replay/2"}, "replay result {path} has version 2, .* use a newer one"),
        (
            {"fidelity": {"schema": "flextrace.fidelity/2"}},
            "comparison of a replay {path} has version 2, .* use a newer one",
        ),
        ({"fidelity": 5}, "{path} is not a comparison of a replay but some other"),
        ({"schema": "flextrace.profile/1"}, "{path} is not a replay result but flextrace.profile/1"),
    ],
)
def test_a_recorded_replay_has_two_versions(tmp_path, changes, said):
    path = tmp_path / "document.json"
    path.write_text(json.dumps(RECORDED))
    assert fidelity.load(path) == RECORDED
    path.write_text(json.dumps(RECORDED | changes))
    with pytest.raises(FlextraceError, match=said.format(path=path)):
        fidelity.load(path)


def test_a_replay_that_was_not_recorded(tmp_path):
    path = tmp_path / "document.json"
    path.write_text(json.dumps({"schema": "flextrace.replay/1"}))
    with pytest.raises(FlextraceError, match="has no comparison of a replay with its original: write it by"):
        fidelity.load(path)
