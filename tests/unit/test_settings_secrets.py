"""Secrets, nested tables, tables whose names the operator chooses, and the origin of each value."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pydantic import Field, SecretStr

from warren.domain.errors import ConfigError
from warren.settings import Origin, Settings, Source, mask
from warren.settings.kinds import Group
from warren.settings.sources import find_line

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "correct-horse-battery-staple-0123456789"


class Inner(Group):
    secret: SecretStr | None = Field(default=None, min_length=8)
    leeway_s: float = 30


class Door(Group):
    inner: Inner = Inner()


class Sample(Settings):
    door: Door = Door()


def load(folder: Path, environ: dict[str, str] | None = None, file: str = "") -> Sample:
    (folder / "warren.toml").write_text(file)
    settings = Sample.load(environ or {}, str(folder))
    assert isinstance(settings, Sample)
    return settings


def test_a_table_in_a_table_has_one_variable_for_each_setting(tmp_path: Path) -> None:
    settings = load(tmp_path, {"WARREN_DOOR_INNER_LEEWAY_S": "5"}, "[door.inner]\nsecret = 'from-the-file'")

    assert settings.door.inner.leeway_s == 5
    assert settings.door.inner.secret == SecretStr("from-the-file")


def test_the_operator_chooses_the_names_in_a_table_of_tables(tmp_path: Path) -> None:
    settings = load(tmp_path, file="[tenants.acme]\nactive = 7\n[tenants.'a b']\n")

    assert {name: tenant.active for name, tenant in settings.tenants.items()} == {"acme": 7, "a b": None}
    assert dict(settings.values())["tenants.acme.active"] == 7
    assert settings.origin_of("tenants.acme.active") == Origin(Source.FILE, str(tmp_path / "warren.toml"))
    assert settings.origin_of("tenants.a b.active").source is Source.DEFAULT


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_secret_comes_from_a_file_without_the_newline_at_its_end(tmp_path: Path, end: str) -> None:
    held = tmp_path / "held"
    held.write_bytes(f" {SECRET}{end}".encode())

    for settings in (
        load(tmp_path, {"WARREN_DOOR_INNER_SECRET_FILE": str(held)}),
        load(tmp_path, file=f"[door.inner]\nsecret_file = '{held}'"),
    ):
        assert settings.door.inner.secret is not None
        assert settings.door.inner.secret.get_secret_value() == f" {SECRET}"
        assert settings.origin_of("door.inner.secret").secret_file == str(held)


def test_a_secret_is_shown_nowhere(tmp_path: Path) -> None:
    settings = load(tmp_path, {"WARREN_DOOR_INNER_SECRET": SECRET})

    shown = f"{settings!r} {settings} {settings.model_dump_json()} {[mask(value) for _, value in settings.values()]}"
    assert SECRET not in shown
    assert mask("postgres://me:hunter2@db/x") == "postgres://********@db/x"


@pytest.mark.parametrize(
    ("environ", "file", "words"),
    [
        ({"WARREN_DOOR_INNER_SECRET": SECRET[:3]}, "", ["WARREN_DOOR_INNER_SECRET cannot be what it is", "8"]),
        ({}, f"[door.inner]\nsecret = ['{SECRET}']", ["warren.toml: door.inner.secret cannot be what it is"]),
        (
            {"WARREN_DOOR_INNER_SECRET": SECRET, "WARREN_DOOR_INNER_SECRET_FILE": "/x"},
            "",
            ["WARREN_DOOR_INNER_SECRET and WARREN_DOOR_INNER_SECRET_FILE are both set"],
        ),
        ({}, f"[door.inner]\nsecret = '{SECRET}'\nsecret_file = '/x'", ["door.inner.secret_file are both set"]),
        ({}, "[door.inner]\nsecret_file = 3", ["door.inner.secret_file must be the path of a file"]),
        ({"WARREN_DOOR_INNER_SECRET_FILE": "/nowhere"}, "", ["_SECRET_FILE names /nowhere", "No such file"]),
        ({"WARREN_DOOR_INNER_SECRET_FILE": "/"}, "", ["names /, which cannot be read: Is a directory"]),
        ({"WARREN_DOOR_INNER_SECRET_FILE": "/dev/null"}, "", ["names /dev/null, which is empty"]),
        ({"WARREN_DOOR_INNER_SECRET_FILE": "/dev/zero"}, "", ["names /dev/zero, which has more than 64 KiB"]),
        ({"WARREN_IMAGE_FILE": "/x"}, "", ["WARREN_IMAGE_FILE is not a setting"]),
        ({}, "[tenants.acme]\nactiv = 3", ["tenants.acme.activ is not a setting: did you mean tenants.acme.active?"]),
        ({}, "[tenants.acme]\nactive = 'x'", ["warren.toml: tenants.acme.active cannot be 'x'"]),
        ({}, "[tenants]\nacme = 3", ["tenants.acme must be a table, as in [tenants.acme]"]),
        ({}, "[door]\ninner = 3", ["door.inner must be a table, as in [door.inner]"]),
        ({"WARREN_DOOR_INNER_LEEWAY_S": "1"}, "door = 3", ["door must be a table, as in [door]"]),
    ],
)
def test_a_wrong_setting_is_one_sentence_that_names_it_and_no_secret(
    tmp_path: Path, environ: dict[str, str], file: str, words: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, environ, file)

    message = str(caught.value)
    assert all(word in message for word in words), message
    assert SECRET[:3] not in message
    assert "\n" not in message


def test_each_value_remembers_where_it_came_from(tmp_path: Path) -> None:
    path = tmp_path / "warren.toml"
    path.write_text("image = 'python'\n\n[limits]\ncpus = 2 # two\npids = 64\n[serve]\n'port' = 9\n")

    settings = Settings.load({"WARREN_LIMITS_PIDS": "65"}, str(tmp_path), {"serve.host": "::1"})

    assert settings.origin_of("image") == Origin(Source.FILE, str(path))
    assert settings.origin_of("limits.pids") == Origin(Source.ENVIRONMENT, "WARREN_LIMITS_PIDS")
    assert settings.origin_of("serve.host") == Origin(Source.FLAG)
    assert settings.origin_of("engine") == Origin(Source.DEFAULT)
    assert [find_line(str(path), name) for name in ("image", "limits.cpus", "serve.port", "engine")] == [1, 4, 7, None]


def test_a_time_can_have_no_end(tmp_path: Path) -> None:
    assert Settings.load({"WARREN_LIFE_IDLE_TIMEOUT_S": "none"}, str(tmp_path)).life.idle_timeout_s is None


def test_the_sentence_about_a_flag_names_the_setting_and_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^serve\.port cannot be 70000"):
        Settings.load({}, str(tmp_path), {"serve.port": 70_000})
