"""The documents tell the truth about the code, as far as a machine can check."""

from __future__ import annotations

import ast
import html
import os
import re
import shlex
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING

import pytest

import warren
from house import settings_page
from house.repository import ROOT, files, read
from warren.settings import names, variable_of

if TYPE_CHECKING:
    from pathlib import Path

PAGES = files(suffix=".md")
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SECTION = re.compile(r"^## (warren [\w -]+)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
PARAMETER = re.compile(r'(?:get_\w+|_seconds)\((?:header|params), "(\w+)"')
OP = re.compile(r'"((?:kernel|terminal|fs|tunnel)\.[a-z]+)"')


def terminal_commands() -> tuple[str, ...]:
    """Return the commands that the README's picture is made of."""
    tree = ast.parse(read("docs/pictures/terminal.py"))
    (value,) = (
        node.value for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "COMMANDS"
    )
    return tuple(ast.literal_eval(value))


def test_the_settings_page_is_what_the_settings_say() -> None:
    assert read("docs/reference/settings.md") == settings_page.render(), "run `make docs`"


def test_every_setting_is_on_its_page() -> None:
    page = read("docs/reference/settings.md")

    assert [name for name in names() if f"`{name}`" not in page or f"`{variable_of(name)}`" not in page] == []


def test_the_changelog_begins_with_this_version() -> None:
    versions = re.findall(r"^## (\d+\.\d+\.\d+)", read("CHANGELOG.md"), re.MULTILINE)

    assert versions[0] == warren.__version__


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page: str) -> None:
    targets = [
        target for target in LINK.findall(read(page)) if "://" not in target and not target.startswith("mailto:")
    ]
    folder = os.path.join(ROOT, os.path.dirname(page))

    assert [target for target in targets if not os.path.exists(os.path.join(folder, target))] == []


def test_every_page_is_in_the_index() -> None:
    listed = {os.path.normpath(os.path.join("docs", target)) for target in LINK.findall(read("docs/README.md"))}
    pages = {page for page in PAGES if page.startswith("docs/") and not page.startswith("docs/adr/")}

    assert pages - listed == {"docs/README.md"}, "docs/README.md lists every page by what one wants to do"


@pytest.mark.parametrize("page", PAGES)
def test_every_file_that_a_page_names_is_there(page: str) -> None:
    text = read(page)
    whole = re.findall(r"`((?:src|tests|docs|images|benchmarks|requirements)/[\w./-]+\.\w+)`", text)
    in_a_package = set(re.findall(r"`(\w[\w-]*/[\w./-]+\.py)`", text)) - set(whole)

    assert [name for name in whole if not os.path.exists(os.path.join(ROOT, name))] == []
    packages = [os.path.join(ROOT, "src", "warren"), os.path.join(ROOT, "src", "warren", "render")]
    assert [
        name for name in in_a_package if not any(os.path.exists(os.path.join(package, name)) for package in packages)
    ] == []


@pytest.mark.parametrize(
    "page", [*PAGES, *files(suffix=".lock"), *files(under="images/"), "Makefile", "pyproject.toml"]
)
def test_no_page_names_a_path_of_a_private_machine(page: str) -> None:
    private = re.compile(r"(?<![\w.~])/(?:work|home/(?!sandbox)\w+|root)/")

    assert private.findall(read(page)) == []


@pytest.mark.parametrize("page", PAGES)
def test_every_example_can_be_read_by_what_it_is_for(page: str) -> None:
    for language, text in BLOCK.findall(read(page)):
        if language == "python":
            ast.parse(text)
        elif language == "toml":
            tomllib.loads(text)
        elif language in {"bash", "sh"}:
            subprocess.run(["bash", "-n"], input=text, check=True, text=True)


def test_the_commands_of_the_readme_exist() -> None:
    makefile = read("Makefile")
    for language, text in BLOCK.findall(read("README.md")):
        for line in text.replace("\\\n", " ").splitlines() if language in {"bash", "sh"} else ():
            words = shlex.split(line, comments=True)
            if words[:1] == ["make"]:
                assert re.search(rf"^{words[1]}:", makefile, re.MULTILINE), line


def test_the_picture_of_the_readme_shows_the_commands_of_its_script() -> None:
    shown = re.findall(r'<tspan class="prompt">\$ </tspan>(.*?)</text>', read("docs/pictures/terminal.svg"))

    assert tuple(map(html.unescape, shown)) == terminal_commands(), "run `make picture`"


@pytest.mark.parametrize("command", terminal_commands())
def test_a_command_of_the_picture_exists(command: str) -> None:
    words = shlex.split(command.removeprefix("id=$(").removesuffix(")"))
    sections = dict(
        re.findall(r"^## (warren [\w -]+)\n(.*?)(?=^## |\Z)", read("docs/reference/cli.md"), re.MULTILINE | re.DOTALL)
    )
    name = max((each for each in sections if words[: each.count(" ") + 1] == each.split()), key=len)

    options = [word for word in words[name.count(" ") + 1 :] if re.fullmatch(r"--?[a-z]+", word)]
    assert [option for option in options if f"`{option}`" not in sections[name]] == []


def test_each_promise_names_a_file_that_shows_it() -> None:
    rows = [line.split(" | ") for line in read("SPECIFICATION.md").splitlines() if line.startswith("| ")]
    promises = [(row[0], re.findall(r"`([\w./-]+/[\w./-]*)`", row[-1])) for row in rows if row[0] != "| promise"]

    assert len(promises) > 80
    assert [promise for promise, named in promises if not named] == []
    missing = {name for _, named in promises for name in named if not os.path.exists(os.path.join(ROOT, name))}
    assert missing == set()


def test_the_site_is_built_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    pages = [page.read_text() for page in tmp_path.rglob("*.html")]
    assert len(pages) > 70
    assert [load for page in pages for load in re.findall(r'<(?:script|link|img)[^>]*="https?://[^>]*>', page)] == []


def test_each_operation_of_the_agent_is_in_the_reference() -> None:
    page = read("docs/reference/wire.md")
    ops = {op for name in files(under="src/warren/guest/", suffix=".py") for op in OP.findall(read(name))}

    assert {op for op in ops if f"`{op}`" not in page} == set()


def test_each_parameter_of_an_operation_is_in_the_reference() -> None:
    page = set(re.findall(r"\w+", read("docs/reference/wire.md")))
    read_by = {
        name: parameter
        for name in files(under="src/warren/guest/", suffix=".py")
        for parameter in PARAMETER.findall(read(name))
        if parameter not in page
    }

    assert read_by == {}


def test_every_decision_says_what_would_change_our_mind() -> None:
    parts = ("## Context", "## Decision", "## Consequences", "## What would change our mind")
    decisions = files(under="docs/adr/", suffix=".md")

    assert len(decisions) >= 6
    for page in decisions:
        assert [part for part in parts if part not in read(page)] == [], page
