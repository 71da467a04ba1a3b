# SPDX-License-Identifier: Apache-2.0
"""Files that one thread opens while another one changes their names: what is always there is always found."""

import json
import subprocess

import pytest

import characterize
from characterize.layout import FileFlag, Fileop
from tests.made_trace import made_trace, read
from tests.straced import ENGINE, needs_engine, op

pytestmark = needs_engine

PAGE = 4096
NAMES_FROM = 1 << 31
ROUNDS = 20_000
LIFE = (Fileop.OPEN, Fileop.CLOSE)
EXCHANGE = 2  # RENAME_EXCHANGE


@pytest.mark.parametrize("exchange", [False, True])
def test_a_file_is_found_while_it_is_renamed(tmp_path, exchange):
    """One thread gives it two names in turn, or exchanges them with a larger file; another opens, reads, closes it."""
    flags = {"length": EXCHANGE} if exchange else {}
    renames = [op(Fileop.RENAME, 10 * at, argument=NAMES_FROM + at % 2, **flags) for at in range(1, ROUNDS + 1)]
    lives = [op(kind, 10 * at + 3 * step, thread=2) for at in range(ROUNDS) for step, kind in enumerate(LIFE)]
    whole = [read(0, PAGE, 10 * at + 1, thread=2, asked_bytes=2 * PAGE) for at in range(ROUNDS)]
    files = [
        {"file": 1, "size_bytes": PAGE},
        {"file": 2, "size_bytes": 2 * PAGE},
        *({"file": NAMES_FROM + at, "flags": FileFlag.NEW_NAME} for at in (0, 1)),
    ]
    paths = {1: "/a", 2: "/b" if exchange else "/c", NAMES_FROM: "/a", NAMES_FROM + 1: "/b"}
    other = read(0, PAGE, 1, thread=3, file=2)
    trace = made_trace([other, *whole], fileops=renames + lives, files=files, paths=paths)
    path = characterize.write(trace, tmp_path / "t.iotrace")
    command = [ENGINE, path, f"--directory={tmp_path / 'image'}", "--order=thread"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    document = json.loads(done.stdout)
    assert not document["errors"]
    assert not document["mismatches"]
    assert document["operations"]["done"] == document["operations"]["records"] == 1 + 4 * ROUNDS
