# SPDX-License-Identifier: Apache-2.0
"""Parts on worker processes: the same numbers as in one process, also if workers die; errors that name their file."""

import argparse
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest

import characterize as package
from characterize.characterization import characterize
from characterize.cluster import characterize_set as rounds
from characterize.cluster.engine import dask_engine
from characterize.cluster.part import summarize
from characterize.errors import FlextraceError
from characterize.stream import open_stream
from characterize.trace_files.archive import pack
from flextrace.characterize import _name_of_set, add_arguments, run
from flextrace.main import main
from tests.traces.flexible_traces import KINDS
from tests.traces.made_trace import made_trace, read

pytestmark = pytest.mark.parallel

DAY_NS = 86_400 * 10**9


def has_dask() -> bool:
    try:
        import distributed  # noqa: F401, PLC0415
    except ImportError:
        return False
    return True


needs_dask = pytest.mark.skipif(not has_dask(), reason="Dask is not installed (pip install 'flextrace[cluster]')")


@pytest.fixture(scope="module")
def database(tmp_path_factory) -> Path:
    return package.write(KINDS["database"](), tmp_path_factory.mktemp("cluster") / "a.iotrace")


@pytest.fixture(scope="module")
def workers():
    """Two worker processes; an engine, and the scheduler's address."""
    import distributed  # noqa: PLC0415

    with dask_engine(workers=2) as (engine, parts):
        yield engine, parts, distributed.default_client().scheduler.address


@needs_dask
def test_several_processes_find_what_one_does(database, workers):
    engine, parts, _ = workers
    assert parts > 2
    merged = rounds.characterize_set([database], engine=engine, parts=parts, piece_records=5000)
    assert merged.as_document() == characterize(open_stream(database)).as_document()


@needs_dask
def test_what_workers_that_die_had_is_done_again(database, workers, tmp_path, monkeypatch):
    """Twice in the middle of the run: with a part in hand, after others were done whose results only it may hold."""
    engine, _, _ = workers
    died = tmp_path / "died"

    def dying(task):
        for which in ("first", "second"):
            if task.part.begin_ns and not (died / which).exists():
                (died / which).write_text(str(os.getpid()))
                os.kill(os.getpid(), signal.SIGKILL)
        return summarize(task)

    died.mkdir()
    monkeypatch.setattr(rounds, "summarize", dying)
    merged = rounds.characterize_set([database], engine=engine, parts=16)
    first, second = ((died / name).read_text() for name in ("first", "second"))
    assert first != second
    assert merged.as_document() == characterize(open_stream(database)).as_document()


@needs_dask
def test_an_interrupt_is_for_the_one_that_ends_the_workers(database, workers):
    """A terminal sends Ctrl-C to all of them."""
    engine, _, _ = workers

    def blocked(_):
        return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])

    assert all(engine(blocked, range(16)))
    assert not blocked(None)
    words = [sys.executable, "-m", "flextrace", "characterize", str(database), "--workers", "2"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0) as verb:
        children = Path(f"/proc/{verb.pid}/task")
        while sum(len(path.read_text().split()) for path in children.glob("*/children")) < 3:  # one is of Python itself
            assert verb.poll() is None
            time.sleep(0.01)
        os.killpg(verb.pid, signal.SIGINT)
        told = verb.communicate()
    assert (verb.returncode, *told) == (130, "", "flextrace characterize: interrupted\n")


@needs_dask
def test_the_verb_uses_a_scheduler(database, workers, capsys):
    _, _, address = workers
    assert main(["characterize", str(database), "--format", "json"]) == 0
    alone = json.loads(capsys.readouterr().out)
    assert main(["characterize", str(database), "--format", "json", "--scheduler", address]) == 0
    divided = json.loads(capsys.readouterr().out)
    del alone["command"], divided["command"]
    assert divided == alone


@needs_dask
def test_groups_and_windows_by_a_scheduler(database, workers, capsys):
    _, _, address = workers
    asked = ["characterize", str(database), "--by", "file", "--window", "100ms", "--format", "json"]
    assert main(asked) == 0
    alone = json.loads(capsys.readouterr().out)
    assert {group["by"] for group in alone["groups"]} == {"file", "window"}
    assert main([*asked, "--scheduler", address]) == 0
    assert json.loads(capsys.readouterr().out)["groups"] == alone["groups"]


@needs_dask
def test_figures_by_a_scheduler(database, workers, capsys, tmp_path):
    pytest.importorskip("matplotlib")
    _, _, address = workers
    asked = ["characterize", str(database), "--figure-format", "svg", "--figures"]
    assert main([*asked, str(tmp_path / "alone")]) == 0
    assert main([*asked, str(tmp_path / "divided"), "--scheduler", address]) == 0
    told = capsys.readouterr().err
    alone = sorted(path.name for path in (tmp_path / "alone").iterdir())
    assert alone == sorted(path.name for path in (tmp_path / "divided").iterdir())
    assert "a-vfs-sizes.svg" in alone
    assert all(str(tmp_path / "divided" / name) in told for name in alone)


@needs_dask
def test_a_bad_file_among_many_is_named(workers, tmp_path):
    engine, _, _ = workers
    directory = tmp_path / "set"
    directory.mkdir()
    for number in range(6):
        rows = [read(4096 * at, 4096, at, file=number + 1) for at in range(2000)]
        clock = {"start_monotonic_ns": 1, "start_realtime_ns": DAY_NS, "end_monotonic_ns": 9000}
        path = package.write(made_trace(rows, **clock), tmp_path / f"{number}.iotrace")
        pack(path, directory / f"{number}.parquet", batch_records=500)
    assert rounds.characterize_set([directory], engine=engine, parts=4).layers["vfs"].requests == 12_000
    bad = directory / "4.parquet"
    content = bytearray(bad.read_bytes())
    content[len(content) * 3 // 5 : len(content) * 3 // 5 + 64] = bytes(64)
    bad.write_bytes(content)
    with pytest.raises(FlextraceError, match=r"cannot read archive .*4\.parquet: it is cut off or damaged"):
        rounds.characterize_set([directory], engine=engine, parts=4)
    bad.write_bytes(b"no archive at all")
    with pytest.raises(FlextraceError, match=r"4\.parquet is not a flextrace trace"):
        rounds.characterize_set([directory], engine=engine)


def refused(*arguments: str) -> str:
    """The message of the verb, whose exit code is 2."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    with pytest.raises(FlextraceError) as refusal:
        run(parser.parse_args(arguments))
    assert refusal.value.exit_code == 2
    return str(refusal.value)


def test_what_is_not_divided_is_refused(database):
    assert "flextrace import" in refused(str(database), "--workers", "2", "--input-format", "spc")


def test_the_figures_of_a_set_have_a_name(database, monkeypatch):
    monkeypatch.chdir(database.parent)
    assert _name_of_set([database]) == database
    assert _name_of_set([Path()]).name == database.parent.name
    assert _name_of_set([database, database]).name == "recordings"


def test_without_dask_the_message_says_what_to_install(database, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert "pip install 'flextrace[cluster]'" in refused(str(database), "--workers", "2")


@needs_dask
def test_wrong_numbers_and_addresses_are_refused(database, tmp_path):
    assert "0 workers cannot be started" in refused(str(database), "--workers", "0")
    (tmp_path / "list.json").write_text("[1]")
    os.mkfifo(tmp_path / "pipe")  # nobody writes into it
    for name in ("none.json", "list.json", "pipe"):
        with (
            pytest.raises(FlextraceError, match="cannot reach the Dask scheduler"),
            dask_engine(scheduler=str(tmp_path / name)),
        ):
            pass


@needs_dask
def test_workers_start_in_silence_beside_others():
    """Who serve HTTP at Dask's usual port."""
    with socket.socket() as other, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with contextlib.suppress(OSError):  # there are some
            other.bind(("127.0.0.1", 8787))
            other.listen()
        with dask_engine(workers=1):
            pass
    assert not [str(it.message) for it in said if "already in use" in str(it.message)]


@needs_dask
def test_workers_that_do_not_start_are_told(monkeypatch):
    def too_many(**options):
        raise RuntimeError("Nanny failed to start.") from OSError("Cannot allocate memory")

    monkeypatch.setattr("distributed.LocalCluster", too_many)
    with (
        pytest.raises(FlextraceError, match=r"2 worker processes could not be started \(Cannot allocate memory\): "),
        dask_engine(workers=2),
    ):
        pass


def test_nothing_but_the_option_imports_dask(database):
    code = "import sys; from flextrace.main import main; main(sys.argv[1:]); print('distributed' in sys.modules)"
    told = subprocess.run(
        [sys.executable, "-c", code, "characterize", str(database)], capture_output=True, text=True, check=True
    )
    assert told.stdout.splitlines()[-1] == "False"
