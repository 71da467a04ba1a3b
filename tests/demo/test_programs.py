# SPDX-License-Identifier: Apache-2.0
"""The applications of the demo do what they claim: real transactions, real text."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
from pathlib import Path

import pytest

from tests.demo.sort_input import LINE_BYTES, write_sort_input
from tests.truths.straced import ROOT

pytestmark = pytest.mark.parallel

SOURCE = ROOT / "tests/programs/debit_credit.c"


@pytest.fixture(scope="module")
def debit_credit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = ROOT / "build/tests/debit_credit"
    if built.exists() and built.stat().st_mtime >= SOURCE.stat().st_mtime:
        return built
    if shutil.which("gcc") is None or not Path("/usr/include/sqlite3.h").exists():
        pytest.skip("no gcc or no sqlite3.h: 'make build' installs them")
    program = tmp_path_factory.mktemp("programs") / "debit_credit"
    command = ["gcc", "-O1", "-std=gnu11", "-D_GNU_SOURCE", str(SOURCE), "-o", str(program), "-lsqlite3"]
    subprocess.run(command, check=True, cwd=ROOT)
    return program


def run(program: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(program), *map(str, arguments)], capture_output=True, text=True, check=False, timeout=60)


def test_transactions_are_in_the_database(debit_credit: Path, tmp_path: Path) -> None:
    database = tmp_path / "bank.db"
    assert run(debit_credit, database, "--accounts", 250_000).returncode == 0
    result = run(debit_credit, database, "--transactions", 137, "--seed", 7)
    assert result.returncode == 0, result.stderr
    assert "137 transactions" in result.stdout
    assert "journal mode delete, synchronous full" in result.stdout
    with sqlite3.connect(database) as connection:
        rows = {
            table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            for table in ("branches", "tellers", "accounts", "history")
        }
        assert rows == {"branches": 3, "tellers": 30, "accounts": 250_000, "history": 137}
        by_account = connection.execute(
            "SELECT aid, sum(delta) FROM history GROUP BY aid HAVING sum(delta) <> 0"
        ).fetchall()
        assert (
            connection.execute("SELECT aid, balance FROM accounts WHERE balance <> 0 ORDER BY aid").fetchall()
            == by_account
        )
        by_teller = dict(connection.execute("SELECT tid, sum(delta) FROM history GROUP BY tid"))
        assert (
            dict(connection.execute("SELECT tid, balance FROM tellers WHERE tid IN (SELECT tid FROM history)"))
            == by_teller
        )
        home = connection.execute(
            "SELECT count(*) FROM history h JOIN accounts a USING (aid) WHERE a.bid = h.bid"
        ).fetchone()[0]
        # 85 % plus the third of the rest that falls on the same branch: 90 % of 137 +- 4 standard deviations.
        assert 109 <= home <= 136
    connection.close()


def test_check_finds_money_out_of_nothing(debit_credit: Path, tmp_path: Path) -> None:
    database = tmp_path / "bank.db"
    assert run(debit_credit, database, "--accounts", 1000, "--transactions", 20).returncode == 0
    assert "consistent" in run(debit_credit, database, "--check").stdout
    connection = sqlite3.connect(database)
    connection.execute("UPDATE accounts SET balance = balance + 1 WHERE aid = 17")
    connection.commit()
    connection.close()
    result = run(debit_credit, database, "--check")
    assert result.returncode == 1
    assert "NOT CONSISTENT" in result.stdout


def test_the_same_seed_gives_the_same_history(debit_credit: Path, tmp_path: Path) -> None:
    histories = []
    for name in ("one.db", "two.db"):
        assert run(debit_credit, tmp_path / name, "--accounts", 5000, "--transactions", 50, "--seed", 3).returncode == 0
        connection = sqlite3.connect(tmp_path / name)
        histories.append(connection.execute("SELECT tid, aid, delta FROM history ORDER BY rowid").fetchall())
        connection.close()
    assert histories[0] == histories[1]
    assert len(set(histories[0])) == 50


@pytest.mark.parametrize(
    "arguments", [[], ["x.db", "--accounts", "0"], ["x.db", "--transactions", "-1"], ["x.db", "--seed", "1x"]]
)
def test_debit_credit_refuses_wrong_arguments(debit_credit: Path, arguments: list[str]) -> None:
    result = run(debit_credit, *arguments)
    assert result.returncode != 0
    assert result.stderr


def test_a_database_that_is_none_is_an_error(debit_credit: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("this is no database\n" * 100)
    result = run(debit_credit, tmp_path / "text", "--transactions", 1)
    assert result.returncode == 1
    assert "not a database" in result.stderr


def test_sort_input_is_text_of_random_lines(tmp_path: Path) -> None:
    size = write_sort_input(tmp_path / "a", 1_000_001, seed=5)
    data = (tmp_path / "a").read_bytes()
    assert len(data) == size == 1_000_100
    lines = data.split(b"\n")
    assert lines.pop() == b""
    assert {len(line) + 1 for line in lines} == {LINE_BYTES}
    assert len({line[:10] for line in lines}) == len(lines)
    assert lines != sorted(lines)
    assert min(data.replace(b"\n", b"")) >= 32
    assert max(data) < 127
    write_sort_input(tmp_path / "b", 1_000_001, seed=5)
    assert (tmp_path / "b").read_bytes() == data
    write_sort_input(tmp_path / "c", 1_000_001, seed=6)
    assert (tmp_path / "c").read_bytes() != data
