"""`warren keys` and `warren audit`, as processes over a data folder of their own."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import re
import sqlite3
import struct
import termios
from datetime import datetime
from fcntl import ioctl
from typing import TYPE_CHECKING, Any

import pytest

from e2e import forked
from e2e.forked import Forked

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path


class Commands:
    """Runs `warren` on a data folder."""

    def __init__(self, folder: Path) -> None:
        self.data_dir = folder / "data"
        self._folder = folder
        self._env = {"PATH": os.defpath, "HOME": str(folder), "WARREN_DATA_DIR": str(self.data_dir)}

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return forked.run([*arguments], text=True, cwd=self._folder, env=self._env, timeout=60)

    def json(self, *arguments: str) -> Any:
        done = self(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def on_a_terminal(self, *arguments: str) -> str:
        ours, theirs = pty.openpty()
        ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 160, 0, 0))
        with Forked(
            [*arguments], stdin=theirs, stdout=theirs, stderr=theirs, cwd=self._folder, env=self._env
        ) as process:
            os.close(theirs)
            seen = b""
            try:
                while piece := os.read(ours, 65536):
                    seen += piece
            except OSError:
                pass  # how a terminal says that the other end is closed
            os.close(ours)
            assert process.wait(60) == 0, seen
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", seen.decode())

    def edit(self, statement: str) -> None:
        """Change the database behind the service's back."""
        with sqlite3.connect(self.data_dir / "warren.db") as database:
            triggers = database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall()
            database.executescript("".join(f"DROP TRIGGER {name};" for (name,) in triggers))
            database.execute(statement)
        database.close()


@pytest.fixture
def warren(tmp_path: Path) -> Commands:
    return Commands(tmp_path)


def test_a_key_is_made_listed_and_taken_back(warren: Commands) -> None:
    made = warren.json("keys", "create", "ci", "--tenant", "acme", "--subject", "ann", "--expires", "30d")
    listed = warren.json("keys", "list")
    revoked = warren.json("keys", "revoke", "ci")
    again = warren("keys", "revoke", "ci")

    assert re.fullmatch(r"wrn_[\w-]{43}", made["secret"])
    created, expires = (datetime.fromisoformat(made[name]) for name in ("created_at", "expires_at"))
    assert (expires - created).days == 30
    assert [(key["id"], key["subject"], key["scope"], key["state"]) for key in listed] == [
        (made["id"], "ann", "run", "in force")
    ]
    assert "secret" not in listed[0]
    assert "hash" not in listed[0]
    assert revoked["state"] == "revoked"
    assert again.returncode == 1
    assert "already" in again.stderr


def test_a_person_sees_the_secret_once_and_a_table(warren: Commands) -> None:
    made = warren.on_a_terminal("keys", "create", "laptop")
    table = warren.on_a_terminal("keys", "list")

    secret = re.search(r"wrn_[\w-]{43}", made)
    assert secret is not None
    assert "only time" in made
    assert secret[0] not in table
    assert "laptop of default" in table
    assert "in force" in table


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("create", "x", "--scope", "root"), "read, run, admin"),
        (("create", "x", "--expires", "soon"), "30s"),
        (("create", "=cmd"), "letters"),
        (("create",), "NAME"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_sentence(
    warren: Commands, arguments: tuple[str, ...], word: str
) -> None:
    done = warren("keys", *arguments)

    assert done.returncode == 2
    assert word in done.stderr
    assert "Traceback" not in done.stderr


def test_a_name_in_force_is_not_given_twice(warren: Commands) -> None:
    warren.json("keys", "create", "ci")
    again = warren("keys", "create", "ci")

    assert again.returncode == 1
    assert again.stderr.startswith("warren: ")


@pytest.mark.parametrize(
    "arguments", [("keys", "list"), ("keys", "revoke", "ci"), ("audit", "verify"), ("audit", "export")], ids=" ".join
)
def test_a_folder_that_no_service_has_used_is_no_empty_record(warren: Commands, arguments: tuple[str, ...]) -> None:
    """A wrong folder would verify for ever otherwise."""
    done = warren(*arguments)

    assert done.returncode == 1
    assert f"there is no warren.db in {warren.data_dir}" in done.stderr
    assert "--data-dir" in done.stderr
    assert not warren.data_dir.exists()


def test_a_whole_record_verifies_and_an_earlier_head_is_still_in_it(warren: Commands) -> None:
    at_first = "0:" + "0" * 64
    warren.json("keys", "create", "one")
    first = warren.json("audit", "verify")
    warren.json("keys", "create", "two")
    later = warren.json("audit", "verify", "--known", first["head"], "--known", at_first)
    shown = warren.on_a_terminal("audit", "verify")
    wrong = warren("audit", "verify", "--known", f"1:{'0' * 64}")
    future = warren("audit", "verify", "--known", f"99:{'0' * 64}")

    assert (first["rows"], later["rows"]) == (1, 2)
    assert later["head"] in shown
    assert (wrong.returncode, future.returncode) == (1, 1)
    assert "row 1 " in wrong.stderr
    assert "row 99 " in future.stderr


@pytest.mark.parametrize(
    ("statement", "row"),
    [
        ("DELETE FROM audit WHERE seq = 2", "row 2"),
        ("DELETE FROM audit WHERE seq = 3", "row 3"),
        ("UPDATE audit SET subject = 'forged' WHERE seq = 2", "row 2"),
        ("UPDATE audit SET seq = CASE seq WHEN 1 THEN -2 WHEN 2 THEN -1 ELSE seq END", "row 1"),
    ],
    ids=["deleted", "cut off", "edited", "gone from the start"],
)
def test_a_record_that_was_changed_is_found_out(warren: Commands, statement: str, row: str) -> None:
    for name in ("one", "two", "three"):
        warren.json("keys", "create", name)
    warren.edit(statement)
    done = warren("audit", "verify")

    assert done.returncode == 1
    assert row in done.stderr
    assert done.stdout == ""


def test_the_record_is_exported_line_by_line_and_names_who_did_it(warren: Commands) -> None:
    key = warren.json("keys", "create", "one")
    done = warren("audit", "export")
    rows = [json.loads(line) for line in done.stdout.splitlines()]

    assert [row["action"] for row in rows] == ["key.create", "audit.export"]
    assert rows[0]["details"]["key"] == key["id"]
    assert (rows[0]["tenant"], rows[0]["address"]) == ("command-line", "command line")
    assert rows[1]["previous"] == rows[0]["hash"]
    assert key["secret"] not in done.stdout


def test_a_damaged_record_can_be_copied_but_no_key_is_made(warren: Commands) -> None:
    warren.json("keys", "create", "one")
    warren.edit("UPDATE audit_head SET seq = 9")
    copied = warren("audit", "export")
    made = warren("keys", "create", "two")
    listed = warren.json("keys", "list")

    assert copied.returncode == 0
    assert "not in the record" in copied.stderr
    assert [json.loads(line)["action"] for line in copied.stdout.splitlines()] == ["key.create"]
    assert made.returncode == 1
    assert made.stdout == ""
    assert {key["name"]: key["state"] for key in listed} == {"one": "in force", "two": "revoked"}


def test_the_record_is_exported_as_a_sheet_and_by_time(warren: Commands) -> None:
    warren.json("keys", "create", "one")
    sheet = list(csv.DictReader(io.StringIO(warren("audit", "export", "--format", "csv", "--since", "1h").stdout)))
    before = warren("audit", "export", "--until", "2001-01-01")
    wrong = warren("audit", "export", "--format", "xml")

    assert [row["action"] for row in sheet] == ["key.create", "audit.export"]
    assert json.loads(sheet[0]["details"])["name"] == "one"
    assert before.stdout == ""
    assert wrong.returncode == 2
    assert "jsonl, csv" in wrong.stderr
