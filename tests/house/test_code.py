"""What code may not do, read from its syntax tree."""

from __future__ import annotations

import ast
import re
import subprocess
import sys

import pytest

from house.repository import files, read

ENVIRONMENT_READERS = {
    "src/warren/settings/root.py",  # the one reader
    "src/warren/sdk/environment.py",  # a client has no settings: where the service is, and the key
}
ONLY_WITH_ITS_PACKAGES = {
    "src/warren/guest/interpreter/ipython_executor.py",  # itself imported inside a function, once IPython is found
}
HEAVY = {"pydantic", "typer", "rich", "anyio", "asyncio", "uv", "IPython", "numpy"}


def names_used(source: str) -> set[str]:
    """Return `module.attribute` for each such access, and each imported `module.name`."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found.add(f"{node.value.id}.{node.attr}")
        elif isinstance(node, ast.ImportFrom):
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    return found


def test_only_the_settings_read_the_environment() -> None:
    reading = {"os.environ", "os.getenv", "os.environb", "os.getenvb"}
    # WHY: in guest/ these are the variables of the user's own program, which a kernel sets for it.
    watched = [name for name in files(under="src/", suffix=".py") if not name.startswith("src/warren/guest/")]

    assert [name for name in watched if name not in ENVIRONMENT_READERS and names_used(read(name)) & reading] == []


@pytest.mark.parametrize("name", files(under="tests/", suffix=".py"))
def test_tests_run_the_real_thing(name: str) -> None:
    used = names_used(read(name))

    mocks = {each for each in used if "mock" in each.lower()}
    patches = used & {"monkeypatch.setattr", "monkeypatch.setitem", "monkeypatch.delattr"}
    assert not mocks | patches


SLEEPS = {"time.sleep", "anyio.sleep", "asyncio.sleep", "trio.sleep"}


@pytest.mark.parametrize("name", files(under="tests/", suffix=".py"))
def test_tests_do_not_sleep(name: str) -> None:
    """Only a loop that looks again and again, against a deadline, may pause between looks."""
    if "/programs/" in name:
        return  # runs inside sandboxes, and may take its time
    tree = ast.parse(read(name))
    polling = {
        call
        for loop in ast.walk(tree)
        if isinstance(loop, ast.While | ast.For | ast.AsyncFor)
        for call in ast.walk(loop)
    }
    sleeps = [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in SLEEPS and node not in polling
    ]

    assert sleeps == []


@pytest.mark.parametrize("name", files(under="src/", suffix=".py"))
def test_functions_are_short(name: str) -> None:
    """Counted without signature and docstring: a command line's options are no code."""
    long = [
        f"{node.name}: {length} lines"
        for node in ast.walk(ast.parse(read(name)))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := (node.end_lineno or 0) - _first_line(node)) >= 40
    ]

    assert long == []


def _first_line(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    has_docstring = ast.get_docstring(function) is not None and len(function.body) > 1
    return function.body[1 if has_docstring else 0].lineno


def test_importing_warren_imports_nothing_heavy() -> None:
    program = (
        "import sys, warren.domain.values, warren.domain.errors\n"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )

    output = subprocess.run([sys.executable, "-I", "-c", program], check=True, capture_output=True, text=True).stdout

    assert not HEAVY & set(output.split())


def test_the_guest_imports_only_the_standard_library_when_it_is_imported() -> None:
    """Packages of the image are imported inside functions, where they are known to be there."""
    foreign: dict[str, set[str]] = {}
    for name in set(files(under="src/warren/guest/", suffix=".py")) - ONLY_WITH_ITS_PACKAGES:
        roots = {each.partition(".")[0] for each in top_level_imports(read(name))}
        unknown = roots - set(sys.stdlib_module_names) - {"warren", "__future__"}
        if unknown:
            foreign[name] = unknown

    assert foreign == {}


def top_level_imports(source: str) -> set[str]:
    found: set[str] = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


def test_every_lint_exception_says_why() -> None:
    """`# noqa: S103 - reason`, or a comment on the line above; never a bare noqa."""
    bare = re.compile(r"#\s*noqa(?!: [A-Z]+\d+(, ?[A-Z]+\d+)*\s+\S)")
    found: list[str] = []
    for name in files(under="src/", suffix=".py"):
        above = ""
        for line in read(name).splitlines():
            if bare.search(line) and not above.strip().startswith("#"):
                found.append(f"{name}: {line.strip()}")
            above = line

    assert found == []
