# SPDX-License-Identifier: Apache-2.0
"""What ``make build`` has compiled is what verbs use on a trace that was recorded: none of them compiles anything."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.formulas.probed_profile import unscored_profile
from tests.formulas.synthetic_machine import MIB
from tests.truths.straced import ROOT
from tests.truths.told import run_recorder

STAMP = ROOT / "build" / ".kernels"
PARTS = ("characterize", "replayer", "selfscale")
# As the Makefile has them.
SOURCES = [
    path
    for part in PARTS
    for path in (ROOT / part).rglob("*.py")
    if any(words in path.read_text() for words in ("numba", "import kernel\n"))
]

pytestmark = [
    pytest.mark.records,
    pytest.mark.skipif(
        not STAMP.exists() or STAMP.stat().st_mtime < max(path.stat().st_mtime for path in SOURCES),
        reason="sources are newer than what was compiled (make build)",
    ),
]

COMPILED = """
import contextlib, io, json, sys
from numba.core import event
from flextrace.main import main

class Compiled(event.Listener):
    names = []

    def on_start(self, told):
        self.names.append(f"{told.data['dispatcher'].py_func.__qualname__}{told.data['args']}")

    def on_end(self, told):
        pass

event.register("numba:compile", Compiled())
for words in json.loads(sys.argv[1]):
    Compiled.names.clear()
    with contextlib.redirect_stdout(io.StringIO()):
        code = main(words)
    print(json.dumps([code, Compiled.names]))
"""
"""Runs verbs one after the other, and prints of each its exit code and what numba had to compile."""

CHANGES = ("--seq-frac=0.9x", "--size-mean=2x", "--read-frac=0.9x", "--process-num=2x", "--think-scale=2")
VERBS = {
    "characterize": ("characterize", "{trace}"),
    **{f"alter {it}": ("alter", "{trace}", it, "--nearest", "--force", "--output={made}") for it in CHANGES},
    **{f"predict {it}": ("predict", "{profile}", "--trace", "{trace}", "--model", it) for it in ("learned", "traffic")},
}


def compiled(*verbs: list[str], **environment: str) -> list[tuple[int, list[str]]]:
    """By a process of their own."""
    done = subprocess.run(
        [sys.executable, "-c", COMPILED, json.dumps(verbs)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, **environment},
        check=True,
        timeout=300,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    directory = tmp_path_factory.mktemp("recorded")
    (directory / "in").write_text("".join(f"{number * 7919 % 100003}\n" for number in range(100_003)))
    path = directory / "sort.iotrace"
    command = ["sort", "--buffer-size=256K", f"--temporary-directory={directory}", "-o", directory / "out"]
    assert run_recorder(path, *command, directory / "in").returncode == 0
    return path


@pytest.fixture(scope="module")
def profile(tmp_path_factory):
    made = unscored_profile()
    made.environment = {"cache_limit_bytes": 256 * MIB, "dirty_limit_bytes": 64 * MIB, "read_ahead_bytes": MIB // 8}
    return made.save(tmp_path_factory.mktemp("profile") / "profile.json")


@pytest.fixture(scope="module")
def compiled_by(trace, profile, tmp_path_factory) -> dict[str, tuple[int, list[str]]]:
    """What each verb had to compile that those before it had not."""
    made = tmp_path_factory.mktemp("made") / "altered.iotrace"
    verbs = [[word.format(trace=trace, profile=profile, made=made) for word in words] for words in VERBS.values()]
    return dict(zip(VERBS, compiled(*verbs), strict=True))


def test_that_compiling_would_be_seen(tmp_path):
    """By a verb that needs few kernels, and finds none of them."""
    five = ("--unique-bytes=1M", "--seq-frac=0.5", "--read-frac=1", "--size-mean=4K")
    words = ["willy", f"--output={tmp_path / 'w.iotrace'}", *five]
    ((code, names),) = compiled(words, NUMBA_CACHE_DIR=str(tmp_path))
    assert code == 0
    assert any(name.startswith("place(") for name in names)


@pytest.mark.parametrize("verb", VERBS)
def test_nothing_is_compiled(compiled_by, verb):
    code, names = compiled_by[verb]
    assert code in ((0, 3) if verb.startswith("alter") else (0,))
    assert names == []
