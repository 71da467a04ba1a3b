# SPDX-License-Identifier: Apache-2.0
"""A trace without names: no name is left in any byte of what is written, and everything else is as it was."""

import json
import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import characterize
from characterize.anonymise import Names, anonymised, read_key
from characterize.characterization import characterize as characterization_of
from characterize.durations_of import known_durations
from characterize.errors import FlextraceError
from characterize.layout import HeaderFlag, IoFlag, RecordKind, Source
from tests.traces.archived import full_trace
from tests.traces.made_trace import made_trace, read, write

pytestmark = pytest.mark.parallel

pytest_plugins = ["tests.traces.archive_fixtures"]
KEY = b"a key of more than 16 bytes"
SECRETS = ("payroll", "salaries", "alice", "topsecret", "backup-host", "vg0-private", "corp.example", "quartz")
METADATA = {
    "made_by": "flextrace record 0.1.0",
    "kernel": "6.1.0-corp.example",
    "machine": "x86_64",
    "layers": ["vfs", "block"],
    "command": ["/opt/topsecret/payroll", "--host", "backup-host"],
    "alter_command": "flextrace alter /home/alice/x",
    "in_cgroup": "/sys/fs/cgroup/quartz",
    "filters": {"path": "/home/alice", "device": "254:0"},
    "devices": [{"device": "254:0", "name": "vg0-private", "sectors": 4096, "stacked": False}],
    "closure": {"devices": {"254:0": {"ratio": 0.98}}},
    "lineage": {"parent": "/home/alice/quartz.iotrace", "sha256": "0" * 64, "earlier": None},
    "imported": {"format": "msr", "path": "/srv/backup-host.csv", "time_unit": "filetime", "bad_examples": ["alice,1"]},
    "strange.key-alice": 3,
}
PATHS = {
    1: "/home/alice/payroll/salaries.db",
    2: "/home/alice/payroll/salaries.db-wal",
    3: "/home/alice/quartz (deleted)",
    4: "/usr/lib/topsecret/libpayroll.so.6",
    5: "/usr/local/topsecret/salaries.db",
    6: "relative/alice",
    7: "/nix/store/topsecret/libpayroll.so.6",
}


def named_trace():
    """Operations on named files, with mapped pages of /usr, which the five leave out, and of /usr/local, which not."""
    io = [read(4096 * at, 4096, 10 * at, 5, file=1 + at % 2, thread=3) for at in range(31)]
    io += [write(100 * at, 100, 10 * at, 5, file=3 + at % 4, thread=4) for at in range(17)]
    io += [read(4096 * at, 4096, 400 + at, 1, file=4, source=Source.MMAP, flags=IoFlag.PROGRAM) for at in range(5)]
    io += [read(4096 * at, 4096, 410 + at, 1, file=file, source=Source.MMAP) for file in (4, 5, 7) for at in range(3)]
    files = [{"file": file, "size_bytes": 1 << 20, "inode": 77 + file} for file in PATHS]
    tasks = [{"thread": 3, "process": 3, "comm": b"payroll"}, {"thread": 4, "process": 3, "comm": b"alice-worker-42"}]
    return made_trace(io, files=files, tasks=tasks, paths=PATHS, metadata=METADATA, end_monotonic_ns=500)


@pytest.fixture
def key(tmp_path):
    path = tmp_path / "key"
    path.write_bytes(KEY)
    return path


@pytest.fixture
def named(tmp_path):
    return characterize.write(named_trace(), tmp_path / "named.iotrace")


@pytest.mark.parametrize(
    "form",
    [(suffix, *more) for suffix in ("iotrace", "csv", "json", "parquet") for more in ((), ("--keep-extensions",))],
)
def test_no_name_is_left_in_any_byte(named, key, tmp_path, cli, form):
    suffix, *options = form
    output = tmp_path / f"out.{suffix}"
    status, error = cli("export", named, "-o", output, "--anonymise", "--key", key, *options)
    assert status == 0, error
    written = [output.read_bytes()]
    if suffix == "parquet":  # compressed: what is in it
        assert cli("import", output, "-o", tmp_path / "again.iotrace")[0] == 0
        written.append((tmp_path / "again.iotrace").read_bytes())
    for content in written:
        for secret in (*SECRETS, "relative", str(tmp_path)):
            assert secret.encode() not in content, secret
    if options and suffix != "json":
        assert b".db" in written[-1]
    elif suffix == "iotrace":
        assert b".db" not in written[-1]


def test_everything_else_is_as_it_was(named, key, tmp_path, cli):
    output = tmp_path / "out.iotrace"
    assert cli("export", named, "-o", output, "--anonymise", "--key", key)[0] == 0
    before, after = characterize.open(named), characterize.open(output)
    for kind in set(RecordKind) - {RecordKind.TASK, RecordKind.TEXT, RecordKind.FILE}:
        assert before.arrays[kind].tobytes() == after.arrays[kind].tobytes()
    changed = {"path_bytes"}
    for name in set(before.arrays[RecordKind.FILE].dtype.names) - changed:
        assert before.arrays[RecordKind.FILE][name].tolist() == after.arrays[RecordKind.FILE][name].tolist()
    # The five know programs from data by the path.
    one, other = (characterization_of(it).as_document()["layers"] for it in (before, after))
    for listed in (layer["files"]["listed"] for it in (one, other) for layer in it.values()):
        for file in listed:
            del file["path"]
    assert json.dumps(one) == json.dumps(other)
    metadata = after.header.metadata
    kept = ("made_by", "machine", "layers", "closure")
    assert {name: metadata[name] for name in kept} == {name: METADATA[name] for name in kept}
    assert metadata["devices"][0]["sectors"] == 4096
    assert metadata["imported"]["format"] == "msr"
    assert not {"command", "alter_command", "in_cgroup"} & set(metadata)
    assert cli("characterize", output)[0] == 0


def test_what_a_header_knows_of_flags_and_durations_stays(tmp_path):
    """As of an imported trace whose format has flags, and of a merged one whose parts were altered in other ways."""
    facts = {"imported": {"format": "strace", "path": "/home/alice/log"}, "flags": "known"}
    io = [write(4096 * at, 4096, 10 * at, flags=IoFlag.DIRECT) for at in range(9)]
    for more, flags in (({}, 0), ({"durations_of": "different"}, HeaderFlag.PLANNED)):
        trace = made_trace(io, metadata={**facts, **more}, flags=flags)
        after = characterize.open(characterize.write(anonymised(trace, Names(KEY)), tmp_path / f"{int(flags)}.iotrace"))
        assert known_durations(after) == known_durations(trace)
        assert characterization_of(after).layers["vfs"].extended["directFrac"] == 1
        assert "alice" not in json.dumps(after.header.metadata)


def test_structure_is_kept():
    names = Names(KEY, keep_extensions=True)
    paths = anonymised(named_trace(), names).paths
    for file, path in PATHS.items():
        assert [part == "" for part in paths[file].split("/")] == [part == "" for part in path.split("/")]
        assert paths[file].endswith(" (deleted)") == path.endswith(" (deleted)")
    assert paths[1].split("/")[:4] == paths[2].split("/")[:4]
    assert paths[1].split("/")[-1] == paths[5].split("/")[-1]
    assert re.fullmatch(r"/[0-9a-f]{16}/[0-9a-f]{16}/[0-9a-f]{16}/[0-9a-f]{16}\.db", paths[1])
    assert paths[2].endswith(".db-wal") is False
    assert paths[4].startswith("/usr/")
    assert not paths[5].startswith("/usr")
    assert paths[7].startswith("/nix/store/")


@given(
    st.lists(
        st.lists(
            st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=6),
            min_size=1,
            max_size=4,
        )
    )
)
def test_equal_names_stay_equal_and_others_stay_different(parts):
    paths = {at: "/data/" + "/".join(names) for at, names in enumerate(parts, start=1)}
    hashed = anonymised(made_trace(paths=paths), Names(KEY)).paths
    assert len(set(hashed.values())) == len(set(paths.values()))
    pairs = [(path, hashed[file]) for file, path in paths.items()]
    for one, hash_of_one in pairs:
        for other, hash_of_other in pairs:
            assert (one == other) == (hash_of_one == hash_of_other)
    again = anonymised(made_trace(paths=paths), Names(KEY)).paths
    assert again == hashed
    if any(name not in (".", "..") for names in parts for name in names):
        assert anonymised(made_trace(paths=paths), Names(KEY[::-1])).paths != hashed


def test_dry_run_writes_nothing(named, key, tmp_path, cli):
    before = sorted(tmp_path.iterdir())
    status, error = cli("export", named, "--anonymise", "--key", key, "--dry-run")
    assert status == 0
    names = Names(KEY)
    anonymised(named_trace(), names)
    assert f"{len(names.hash_of)} names, {len(PATHS)} paths" in error
    assert sorted(tmp_path.iterdir()) == before


def test_dry_run_shows_examples(named, key, capsys):
    from flextrace.main import main  # noqa: PLC0415

    assert main(["export", str(named), "--anonymise", "--key", str(key), "--dry-run"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == f"home -> {Names(KEY).hashed('home')}"
    assert len(shown) == 5


def test_keys(named, key, tmp_path, cli, monkeypatch):
    output = tmp_path / "out.iotrace"
    words = ("export", named, "-o", output, "--anonymise")
    for more, message in (
        ((), "either --key FILE or --key-env"),
        (("--key", key, "--key-env", "X"), "either --key FILE or --key-env"),
        (("--key", tmp_path / "none"), "cannot read the key"),
        (("--key-env", "FLEXTRACE_TEST_KEY"), "has 0 bytes: names could be guessed"),
    ):
        status, error = cli(*words, *more)
        assert status in (1, 2), more
        assert message in error
        assert not output.exists()
    status, error = cli("export", named, "-o", output, "--key", key)
    assert (status, "are for --anonymise" in error) == (2, True)
    status, error = cli("export", named, "-o", key.rename(output), "--anonymise", "--key", output, "--force")
    assert (status, "is a file that is read" in error) == (2, True)
    key = output.rename(key)
    monkeypatch.setenv("FLEXTRACE_TEST_KEY", KEY.decode())
    assert cli(*words, "--key-env", "FLEXTRACE_TEST_KEY")[0] == 0
    from_variable = output.read_bytes()
    assert cli(*words, "--key", key, "--force")[0] == 0
    assert output.read_bytes() == from_variable


def test_any_trace(tmp_path):
    """Bytes that are not UTF-8, empty paths, no names at all."""
    trace = anonymised(full_trace(), Names(KEY))
    written = characterize.write(trace, tmp_path / "t.iotrace")
    assert characterize.open(written).paths == trace.paths
    assert b"sort" not in written.read_bytes()
    anonymised(made_trace(), Names(KEY))


def test_a_variable_of_any_name_is_looked_for():
    with pytest.raises(FlextraceError, match="has 0 bytes"):
        read_key(None, os.fsdecode(b"\xff"))


def test_hashes_that_meet_are_refused(monkeypatch):
    monkeypatch.setattr("characterize.anonymise.HASH_DIGITS", 1)
    with pytest.raises(FlextraceError, match="same hash"):
        anonymised(made_trace(paths={at: f"/{at}" for at in range(1, 40)}), Names(KEY))
