"""Writes docs/reference/sdk.md from the client library itself: `make docs`."""

from __future__ import annotations

import ast
import itertools
import os
import sys
from typing import TYPE_CHECKING, Any

import warren.domain.errors
from warren.sdk import public

if TYPE_CHECKING:
    from collections.abc import Iterator

HEAD = """# The client library

Generated from the code by `make docs`; a test keeps it current. [Use Warren from Python](../howto/use-from-python.md)
shows how it is used.

Everything here is in the package `warren`: `from warren import Client`. Each class that talks to a service has a twin
for `await`: `AsyncClient`, `AsyncSandbox` and so on, with the same methods. There what is said to be for a `with` block
is for `async with`, and what is iterated over for `async for`. What a method can be asked for by `**options` is under
[Options](#options).
"""
TALKING = (
    "Client",
    "Sandboxes",
    "Sandbox",
    "Execution",
    "Stream",
    "Files",
    "Kernels",
    "Terminal",
    "Ports",
    "Skills",
    "Retries",
)
OPTIONS = (
    "RunOptions",
    "ExecOptions",
    "OneShotOptions",
    "SandboxOptions",
    "ChangeOptions",
    "ListOptions",
    "SkillOptions",
    "AuditOptions",
)
FAILURES = ("ServiceUnreachable", "NotUnderstood", "ExecutionFailed")
FOLDER = os.path.join(os.path.dirname(public.__file__))


def render() -> str:
    """Return the page."""
    found = {name: node for name, node in classes() if name in {*TALKING, *OPTIONS, *public.__all__}}
    rest = [name for name in public.__all__ if name in found and name not in {*TALKING, *FAILURES}]
    values = [name for name in rest if not name.startswith("Async")]
    parts = [HEAD]
    parts += [class_section(found[name]) for name in TALKING]
    parts.append("\n## Options\n\nWhat is left out is as the service has it.\n")
    parts += [fields_section(found[name], found) for name in OPTIONS]
    parts.append("\n## Values\n\nFrozen, all of them. Fields that a newer service adds are passed over.\n")
    parts += [fields_section(found[name], found) for name in values]
    parts.append(errors_section(found))
    return "".join(parts)


def classes() -> Iterator[tuple[str, ast.ClassDef]]:
    """Yield every class of the library but those with `await`."""
    for folder in (os.path.join(FOLDER, "_sync"), FOLDER):
        for name in sorted(os.listdir(folder)):
            if name.endswith(".py"):
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    tree = ast.parse(file.read())
                yield from ((node.name, node) for node in tree.body if isinstance(node, ast.ClassDef))


def class_section(node: ast.ClassDef) -> str:
    """Write a class: how it is made, and what it can do."""
    text = f"\n## {node.name}\n\n{paragraph(node)}\n"
    made = [each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
    if node.name == "Client":
        text += f"\n`{node.name}({parameters(made[0])})`\n"
    rows = [*attribute_rows(node, made), *method_rows(node)]
    return text + ("\n| | |\n|---|---|\n" + "".join(rows) if rows else "")


def attribute_rows(node: ast.ClassDef, made: list[ast.FunctionDef]) -> Iterator[str]:
    """Write the fields of a dataclass, and what `__init__` sets and documents."""
    for name, kind, meaning in documented(node.body):
        yield row(f"{name}: {kind}" if kind else name, meaning)
    for name, _, meaning in documented(made[0].body if made else []):
        yield row(f".{name}", meaning)


def method_rows(node: ast.ClassDef) -> Iterator[str]:
    """Write the methods and properties."""
    for each in node.body:
        if not isinstance(each, ast.FunctionDef) or each.name.startswith("_"):
            continue
        is_property = any(ast.unparse(name) == "property" for name in each.decorator_list)
        head = f".{each.name}" if is_property else f".{each.name}({parameters(each)})"
        yield row(head, paragraph(each), returned(each))


def returned(function: ast.FunctionDef) -> str:
    """Write what a method gives."""
    kind = "" if function.returns is None else ast.unparse(function.returns)
    for wrapper in ("Iterator", "AbstractContextManager"):
        if kind.startswith(f"{wrapper}["):
            kind = kind.removeprefix(f"{wrapper}[").removesuffix("]")
    return "" if kind in {"None", "Self"} else kind


def parameters(function: ast.FunctionDef) -> str:
    """Write what a method takes, without `self` and without types."""
    arguments = function.args
    for each in (*arguments.args, *arguments.kwonlyargs, *filter(None, (arguments.kwarg, arguments.vararg))):
        each.annotation = None
    return ast.unparse(arguments).removeprefix("self").removeprefix(", ")


def fields_section(node: ast.ClassDef, found: dict[str, ast.ClassDef]) -> str:
    """Write the fields of a value."""
    bases = [base.id for base in node.bases if isinstance(base, ast.Name) and base.id in found]
    inherited = f" All of [{bases[0]}](#{bases[0].lower()}), and:" if bases else ""
    rows = [row(f"{name}: {kind}", meaning) for name, kind, meaning in documented(node.body, everything=True)]
    return f"\n### {node.name}\n\n{paragraph(node)}{inherited}\n\n| | |\n|---|---|\n" + "".join(
        [*rows, *method_rows(node)]
    )


def documented(body: list[ast.stmt], *, everything: bool = False) -> Iterator[tuple[str, str, str]]:
    """Yield name, type and meaning of each field that has one written under it, or of all."""
    for each, following in itertools.pairwise([*body, ast.Pass()]):
        target: Any = each.target if isinstance(each, ast.AnnAssign) else None
        if isinstance(each, ast.Assign):
            target = each.targets[0]
        name = target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "_")
        meaning = text_of(following)
        if not name.startswith("_") and (meaning or everything) and target is not None:
            yield name, ast.unparse(each.annotation) if isinstance(each, ast.AnnAssign) else "", meaning


def errors_section(found: dict[str, ast.ClassDef]) -> str:
    """Write what can be raised."""
    text = (
        "\n## Errors\n\nA service's errors are those of [the API](errors.md), by code: each has `code`, `status`, "
        "`request_id`,\n`retryable` and `retry_after_s`. A code that this version does not know is the class that its "
        "status says, or `Error`\nitself. Every one of them is an `Error`; `ExecutionFailed` is none, because a "
        "program's failure is not the service's.\n\n| class | code | |\n|---|---|---|\n"
    )
    for cls in warren.domain.errors.BY_CODE.values():
        text += f"| `{cls.__name__}` | `{cls.code}` | {(cls.__doc__ or '').splitlines()[0]} |\n"
    for name in FAILURES:
        code = getattr(getattr(public, name), "code", "")
        text += f"| `{name}` | {f'`{code}`' if code else ''} | {paragraph(found[name])} |\n"
    return text + "| `ConfigError` | | The address cannot be used, or there is none; the message says what to do. |\n"


def paragraph(node: ast.ClassDef | ast.FunctionDef) -> str:
    """Return the documentation of something as one paragraph."""
    return " ".join((ast.get_docstring(node) or "").split())


def text_of(node: ast.stmt) -> str:
    """Return a string that stands alone, as the meaning of the field above it does."""
    value = node.value if isinstance(node, ast.Expr) else None
    return " ".join(value.value.split()) if isinstance(value, ast.Constant) and isinstance(value.value, str) else ""


def row(name: str, meaning: str, result: str = "") -> str:
    """Write a row of a table."""
    head = f"{name} → {result}" if result else name
    return f"| `{head.replace('|', chr(92) + '|')}` | {meaning.replace('|', chr(92) + '|')} |\n"


if __name__ == "__main__":
    with open(sys.argv[1], "w", encoding="utf-8") as page:
        page.write(render())
