"""What code may not do, read from its syntax tree."""

from __future__ import annotations

import ast
import contextlib
import functools
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from house.repository import files, read

if TYPE_CHECKING:
    from collections.abc import Iterator

ENVIRONMENT_READERS = {
    "src/warren/settings/root.py",  # the one reader
    "src/warren/sdk/environment.py",  # a client has no settings: where the service is, and the key
}
ONLY_WITH_ITS_PACKAGES = {
    "src/warren/guest/interpreter/ipython_executor.py",  # itself imported inside a function, once IPython is found
}
HEAVY = {"pydantic", "typer", "rich", "anyio", "asyncio", "uv", "IPython", "numpy"}


@functools.cache
def parse(source: str) -> ast.Module:
    """Parse a file once for all rules."""
    return ast.parse(source)


def names_used(source: str) -> set[str]:
    """Return `module.attribute` for each such access, and each imported `module.name`."""
    found: set[str] = set()
    for node in ast.walk(parse(source)):
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


OWN = {"self", "cls"}
PATCHERS = {"setattr", "delattr", "setitem", "delitem"}
PATCHED = {
    # Another system has fewer names in the standard library.
    "tests/unit/test_cli_platforms.py": ["delattr(os, name)", "delattr(signal, name)"],
    "tests/conftest.py": ["providers._get_local_constants = Constants"],  # of hypothesis, which has no setting for it
}


@pytest.mark.parametrize("name", files(under="tests/", suffix=".py"))
def test_tests_run_the_real_thing(name: str) -> None:
    """No mock, and no attribute of our modules and classes is set, nor a private one of any object."""
    source = read(name)
    mocks = {each for each in names_used(source) if "mock" in each.lower()}
    patches = [ast.unparse(patch) for tree in programs(source) for patch in find_patches(tree)]

    assert not mocks
    assert patches == PATCHED.get(name, [])


@pytest.mark.parametrize(
    "way",
    [
        "import OURS.a.b\nOURS.a.b.LIMIT = 1",
        "from OURS.a import b as other\nother.LIMIT += 1",
        "from OURS.a import Thing\ndel Thing.method",
        "thing._private = 1",
        "a, thing.inner._private = 1, 2",
        "patch.setattr(thing, 'name', 1)",
        "setattr(thing, 'name', 1)",
        "PROGRAM = 'from OURS import a\\na.LIMIT = 1'",
    ],
)
def test_a_patch_is_found_whatever_it_looks_like(way: str) -> None:
    assert sum(len(list(find_patches(tree))) for tree in programs(way.replace("OURS", "warren"))) == 1


def programs(source: str) -> list[ast.Module]:
    """Parse a file, and each text in it that is a program which imports something of ours."""
    tree = parse(source)
    found = [tree]
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and {"import", "warren"} <= _words(node.value)
        ):
            with contextlib.suppress(SyntaxError, ValueError):
                found.append(ast.parse(node.value))
    return found


def _words(text: str) -> set[str]:
    return set(re.findall(r"import|warren", text))


def find_patches(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield what changes code from outside: assignments to attributes, and calls that make them."""
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    ours = {
        alias.asname or alias.name.partition(".")[0]
        for node in imports
        for alias in node.names
        if f"{getattr(node, 'module', None) or alias.name}.".startswith("warren.")
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in PATCHERS:
            yield node
        elif isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Delete):
            changed = [each for each in ast.walk(node) if isinstance(each, ast.Attribute)]
            changed = [each for each in changed if not isinstance(each.ctx, ast.Load)]
            if any(_root(each) in ours or (each.attr[0] == "_" and _root(each) not in OWN) for each in changed):
                yield node


def _root(attribute: ast.Attribute) -> str:
    return ast.unparse(attribute).partition(".")[0]


SLEEPS = {"time.sleep", "anyio.sleep", "asyncio.sleep", "trio.sleep"}


@pytest.mark.parametrize("name", files(under="tests/", suffix=".py"))
def test_tests_do_not_sleep(name: str) -> None:
    """Only a loop that looks again and again, against a deadline, may pause between looks."""
    if "/programs/" in name:
        return  # runs inside sandboxes, and may take its time
    tree = parse(read(name))
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
        for node in ast.walk(parse(read(name)))
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
