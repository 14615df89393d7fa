"""No import cycles: of modules at run time, inside functions too; in the core also of types, and between its rooms."""

from __future__ import annotations

import ast
import functools
from typing import TYPE_CHECKING

from house.repository import files, read

if TYPE_CHECKING:
    from collections.abc import Iterator

FACADE = "warren"
"""Hands out the names of the client library when one is first used; its modules take the version from it."""

Graph = dict[str, set[str]]


def module_name(path: str) -> str:
    parts = path.removeprefix("src/").removesuffix(".py").split("/")
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


SOURCES = {module_name(path): read(path) for path in files(under="src/warren/", suffix=".py")}


def is_typing(node: ast.AST) -> bool:
    """Whether it is `if TYPE_CHECKING:`."""
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def statements(node: ast.AST, *, with_types: bool) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the imports of a module, also those inside its functions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        elif is_typing(child) and not with_types:
            assert isinstance(child, ast.If)
            for other in child.orelse:
                yield from statements(other, with_types=with_types)
        else:
            yield from statements(child, with_types=with_types)


@functools.cache
def imported(name: str, *, with_types: bool) -> set[str]:
    """Return the modules of ours that a module imports; a package only where a name of its own is imported."""
    found: set[str] = set()
    for statement in statements(ast.parse(SOURCES[name]), with_types=with_types):
        if isinstance(statement, ast.Import):
            found.update(alias.name for alias in statement.names)
        elif statement.module is not None:
            whole = {f"{statement.module}.{alias.name}" for alias in statement.names}
            found.update(one if one in SOURCES else statement.module for one in whole)
    return found & SOURCES.keys()


def modules(under: str, *, with_types: bool) -> Graph:
    """Return which modules below a package import which others of them."""
    names = {name for name in SOURCES if name == under or name.startswith(f"{under}.")}
    names.discard(FACADE)
    return {name: (imported(name, with_types=with_types) & names) - {name} for name in names}


def rooms(graph: Graph, container: str) -> Graph:
    """Join the modules of each package directly below a container."""

    def room(name: str) -> str:
        return ".".join(name.split(".")[: container.count(".") + 2])

    joined: Graph = {}
    for name, others in graph.items():
        joined.setdefault(room(name), set()).update(room(other) for other in others)
    return {name: others - {name} for name, others in joined.items()}


def find_cycles(graph: Graph) -> set[frozenset[str]]:
    """Return the groups of nodes that can all reach each other."""
    # Without what imports nothing of the rest, again and again: most are not in any cycle.
    rest = dict(graph)
    while leaves := {name for name, others in rest.items() if not others & rest.keys()}:
        rest = {name: others for name, others in rest.items() if name not in leaves}
    reach = {name: reachable(rest, name) for name in rest}
    return {frozenset(other for other in reach[name] if name in reach[other]) for name in rest if name in reach[name]}


def reachable(graph: Graph, start: str) -> set[str]:
    """Return the nodes that can be reached from one."""
    found: set[str] = set()
    ahead = [start]
    while ahead:
        more = (graph[ahead.pop()] & graph.keys()) - found
        found |= more
        ahead += more
    return found


def test_cycles_are_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}, "e": set[str]()}

    assert find_cycles(graph) == {frozenset("abc")}


def test_no_module_imports_itself_through_others_at_run_time() -> None:
    assert find_cycles(modules("warren", with_types=False)) == set()


def test_no_module_of_the_core_knows_itself_through_others() -> None:
    assert find_cycles(modules("warren.core", with_types=True)) == set()


def test_no_room_of_the_core_knows_itself_through_others() -> None:
    assert find_cycles(rooms(modules("warren.core", with_types=True), "warren.core")) == set()
