"""Settings: the sources of values, and the messages for wrong ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from warren.domain.errors import ConfigError
from warren.domain.values import GIB, MIB, Limits
from warren.settings import Settings, names, parse_size, variable_of

if TYPE_CHECKING:
    from pathlib import Path


def test_without_a_file_or_variables_the_defaults_are_those_of_the_domain(tmp_path: Path) -> None:
    settings = Settings.load({}, str(tmp_path))

    assert settings.engine == "local"
    assert settings.image == "data"
    assert not settings.allow_bare
    assert settings.limits.build() == Limits()


def test_a_variable_wins_over_the_file_and_the_file_over_the_default(tmp_path: Path) -> None:
    (tmp_path / "warren.toml").write_text('image = "python"\ntimeout_s = 5\n[limits]\ncpus = 0.5\npids = 64\n')

    settings = Settings.load({"WARREN_TIMEOUT_S": "7", "WARREN_LIMITS_CPUS": "2"}, str(tmp_path))

    assert (settings.image, settings.timeout_s) == ("python", 7.0)
    assert (settings.limits.cpus, settings.limits.pids) == (2.0, 64)


def test_an_empty_variable_counts_as_not_set(tmp_path: Path) -> None:
    assert Settings.load({"WARREN_IMAGE": ""}, str(tmp_path)).image == "data"


def test_sizes_and_lists_are_written_as_people_write_them(tmp_path: Path) -> None:
    environ = {"WARREN_LIMITS_MEMORY_BYTES": "1.5G", "WARREN_OPTIONAL_LAYERS": "memory, cpu,"}

    settings = Settings.load(environ, str(tmp_path))

    assert settings.limits.build().memory_bytes == 1536 * MIB
    assert settings.optional_layers == ("memory", "cpu")


@pytest.mark.parametrize(
    ("text", "size"), [("512M", 512 * MIB), ("2GiB", 2 * GIB), ("64kb", 65536), ("1024", 1024), (" 1 G ", GIB)]
)
def test_a_size_is_a_number_and_a_unit_of_1024(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("environ", "file", "words"),
    [
        ({"WARREN_ENGIN": "local"}, "", ["WARREN_ENGIN ", "did you mean WARREN_ENGINE?"]),
        ({"WARREN_PROT": "1"}, "", ["WARREN_PROT ", "did you mean WARREN_SERVE_PORT?"]),
        ({"WARREN_ZZZ": "1"}, "", ["WARREN_ZZZ ", "docs/reference/settings.md has all there are"]),
        ({"WARREN_ALLOW_BARE": "perhaps"}, "", ["WARREN_ALLOW_BARE", "perhaps", "boolean"]),
        ({"WARREN_LIMITS_MEMORY_BYTES": "lots"}, "", ["WARREN_LIMITS_MEMORY_BYTES", "lots", "512M"]),
        ({"WARREN_LIMITS_CPUS": "5000"}, "", ["cpus must be between 0.05 and 1024, not 5000"]),
        ({"WARREN_TIMEOUT_S": "-1"}, "", ["WARREN_TIMEOUT_S", "greater than 0"]),
        ({}, "imge = 'data'", ["warren.toml", "imge", "did you mean image?"]),
        ({}, "[limits]\nmemory = 1", ["warren.toml", "limits.memory is not a setting", "limits.memory_bytes"]),
        ({}, "limits = 3", ["warren.toml", "[limits]"]),
        ({}, "image = 3", ["warren.toml: image", "3", "string"]),
        ({}, "image =", ["warren.toml", "not valid TOML"]),
        # What a sandbox left in the working folder must not let the next one out.
        ({}, "engine = 'bare'\nallow_bare = true", ["warren.toml: allow_bare", "WARREN_ALLOW_BARE"]),
    ],
)
def test_a_wrong_setting_is_one_sentence_that_names_it(
    tmp_path: Path, environ: dict[str, str], file: str, words: list[str]
) -> None:
    (tmp_path / "warren.toml").write_text(file)

    with pytest.raises(ConfigError) as caught:
        Settings.load(environ, str(tmp_path))

    message = str(caught.value)
    assert all(word in message for word in words), message
    assert "\n" not in message


def test_the_variables_of_programs_in_sandboxes_are_no_settings_and_no_mistakes(tmp_path: Path) -> None:
    Settings.load({"WARREN_EXECUTION": "exe_1", "WARREN_SANDBOX": "sbx_1", "PATH": "/bin"}, str(tmp_path))


def test_the_variables_of_the_tutorials_client_are_no_settings_and_no_mistakes(tmp_path: Path) -> None:
    Settings.load({"WARREN_URL": "http://127.0.0.1:8000", "WARREN_API_KEY": "wrn_secret"}, str(tmp_path))


def test_settings_cannot_be_changed_after_they_were_read(tmp_path: Path) -> None:
    settings = Settings.load({}, str(tmp_path))

    with pytest.raises(ValueError, match="frozen"):
        settings.engine = "bare"


def test_each_setting_has_a_variable_of_its_own() -> None:
    variables = [variable_of(name) for name in names()]

    assert len(set(variables)) == len(variables)
    assert "WARREN_LIMITS_DISK_BYTES" in variables
