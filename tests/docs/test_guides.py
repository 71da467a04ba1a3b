# SPDX-License-Identifier: Apache-2.0
"""What README.md and the guides show works as it stands there, one command after the other, on small files.

What needs root, a device or workers, and what is made of that, is left out: record, scale, validate, compare.
"""

from __future__ import annotations

import gzip
import itertools
import random
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest

import characterize
from characterize.layout import HeaderFlag, RecordKind
from characterize.workload import Workload
from flextrace.main import main
from replayer.willy import make_trace
from tests.truths.documented import DOCUMENTS, commands, program
from tests.truths.straced import ROOT, needs_engine

pytestmark = pytest.mark.parallel

ELSEWHERE = {"record", "doctor", "scale", "validate", "compare", "--record", "--device", "--workers", "--scheduler"}
MADE_ELSEWHERE = {"disk.iotrace", "warm.json", "replay.json", "here-validation.json"}

STRACE = """\
7 1732900000.000100 openat(AT_FDCWD</>, "/data/in", O_RDONLY) = 3</data/in> <0.000010>
7 1732900000.000200 read(3</data/in>, "x"..., 4096) = 4096 <0.000010>
7 1732900000.000300 read(3</data/in>, "x"..., 4096) = 1009 <0.000010>
7 1732900000.000400 close(3</data/in>) = 0 <0.000010>
"""
MSR = "".join(f"{128166372003061629 + 10_000 * at},src1,0,Read,{at * 32768},32768,413\n" for at in range(97))


def recorded(place: Path, requests: int, seed: int) -> None:
    """As a recording of one thread that has a request every 0.2 ms, for 0.05 ms."""
    trace = make_trace(Workload(1 << 20, 0.5, 0.5, 4096, 1), requests=requests, size="fixed", seed=seed)
    trace.header.flags &= ~HeaderFlag.UNTIMED
    io = trace.arrays[RecordKind.IO]
    io["start_ns"], io["duration_ns"] = 200_000 * (1 + np.arange(len(io))), 50_000
    characterize.write(trace, place)


def write_tables(place: Path) -> None:
    """Of two machines, whose requests take a time, and one by their size; and of one with a parameter of its own."""
    generator = random.Random(3)
    for name, call_s in (("here", 1e-4), ("there", 5e-5)):
        rows = ["unique_bytes_mib,seq_frac,read_frac,size_mean,process_num,throughput_mb_per_s"]
        for _ in range(40):
            size, processes = generator.choice([4096, 16384, 65536]), generator.choice([1, 2, 4])
            speed = processes * size / (call_s + size * 1e-9) / 1e6
            shares = f"{generator.random():.2f},{generator.random():.2f}"
            rows.append(f"{generator.choice([1, 16, 128])},{shares},{size},{processes},{speed:.4f}")
        (place / f"{name}.csv").write_text("\n".join(rows) + "\n")
    rows = ["size_mean,process_num,queueDepth,throughput_mb_per_s"]
    for size, processes, depth in itertools.product((4096, 65536), (1, 4, 8), (1, 4, 16)):
        rows.append(f"{size},{processes},{depth},{processes * depth * size / 1e5}")
    (place / "fleet.csv").write_text("\n".join(rows) + "\n")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> Path:
    """What the documents' commands are given."""
    place = tmp_path_factory.mktemp("inputs")
    for seed, name in enumerate(("sort", "warm", "pg")):
        recorded(place / f"{name}.iotrace", 3000, seed)
    (place / "app.strace").write_text(STRACE)
    (place / "src1_0.csv.gz").write_bytes(gzip.compress(MSR.encode()))
    (place / "secret").write_bytes(bytes(range(32)))
    write_tables(place)
    assert main(["import", str(place / "app.strace"), "-o", str(place / "app.iotrace")]) == 0
    for name in ("here", "there"):
        assert main(["fit", str(place / f"{name}.csv"), "-o", str(place / f"{name}.json")]) == 0
    return place


@needs_engine
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_the_commands_of_a_document_run(document, inputs, tmp_path, monkeypatch, capsys):
    shutil.copytree(inputs, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    ran = 0
    for shown in commands(document):
        words = [word.replace("/dev/shm/", "") for word in shown]
        if {*words} & (ELSEWHERE | MADE_ELSEWHERE):
            continue
        if "-o" in words:
            Path(words[words.index("-o") + 1]).unlink(missing_ok=True)
        assert main(words) in {0, 3}, f"flextrace {shlex.join(words)}: {capsys.readouterr().err}"
        ran += 1
    assert ran


def test_the_python_of_the_guide_runs(inputs, monkeypatch):
    monkeypatch.chdir(inputs)
    exec(program(ROOT / "docs" / "characterizing.md"), {})
