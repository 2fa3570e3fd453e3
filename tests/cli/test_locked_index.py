"""The index' file locked by another process: commands answer from the ledger."""

import sqlite3
from contextlib import closing

import pytest


@pytest.mark.parametrize("how", ["NORMAL", "EXCLUSIVE"])
def test_commands_answer_from_the_ledger(cli, how):
    cli.ok("run", "open", "r1", "--watch", "out")
    cli.ok("commit", cli.save(100), "--run", "r1", "--step", 100)
    (index,) = cli.home.glob("*.index.sqlite")
    with closing(sqlite3.connect(index, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA locking_mode = {how}")
        connection.execute("BEGIN EXCLUSIVE")
        connection.execute("DELETE FROM alarms")
        assert cli.ok("commit", cli.save(200), "--run", "r1", "--step", 200)["step"] == 200
        assert [one["step"] for one in cli.ok("ls", "r1")["records"]] == [200, 100]
        assert [one["records"] for one in cli.ok("status")["runs"]] == [2]
    assert [one["step"] for one in cli.ok("ls", "r1")["records"]] == [200, 100]
