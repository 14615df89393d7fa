"""The page about the audit record lists what the code notes."""

from __future__ import annotations

import ast
import os
import re

import warren

SOURCES = os.path.dirname(warren.__file__)
PAGE = os.path.join(os.path.dirname(__file__), "..", "..", "..", "docs", "reference", "audit.md")
ACTION = re.compile(r"[a-z]+\.[a-z_]+")


def is_audit_call(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    called = ast.unparse(node.func)
    return called.endswith(
        ("audit.note", "audit.record", "audit.operation", "record.note", "AuditEntry", "self.note", ".audited")
    )


def actions_in(source: str) -> set[str]:
    """Return the actions that a module can note: written out, or made in a function from what it is called with."""
    found: set[str] = set()
    tree = ast.parse(source)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for call in filter(is_audit_call, ast.walk(function)):
            assert isinstance(call, ast.Call)
            written = [*call.args[1:2], *(each.value for each in call.keywords if each.arg == "action")]
            for action in written:
                found |= {action for action in _words(action) if ACTION.fullmatch(action)}
                prefix = ast.unparse(action)[2:].partition("{")[0] if isinstance(action, ast.JoinedStr) else ""
                if not _words(action) or prefix:
                    callers = [each for each in calls if ast.unparse(each.func) == f"self.{function.name}"]
                    words = {word for each in callers for argument in each.args for word in _words(argument)}
                    found |= {prefix + word for word in words if ACTION.fullmatch(prefix + word)}
    return found


def _words(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return {node.value}
    return _words(node.body) | _words(node.orelse) if isinstance(node, ast.IfExp) else set()


def test_the_page_of_the_record_has_each_action_that_is_noted_and_no_other() -> None:
    used: set[str] = set()
    for folder, folders, names in os.walk(SOURCES):
        # What checks stores notes nothing of anybody, and what runs inside sandboxes notes nothing at all.
        folders[:] = [each for each in folders if each not in {"testing", "guest"}]
        for name in names:
            if name.endswith(".py"):
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    used |= actions_in(file.read())
    with open(PAGE, encoding="utf-8") as file:
        listed = re.findall(r"^\| `([a-z]+\.[a-z_]+)` \|", file.read(), re.MULTILINE)

    assert sorted(used) == sorted(listed)


def test_actions_are_found_however_they_are_written() -> None:
    source = """
class Files:
    def read(self):
        self._doing("read", 1)
    def _doing(self, verb, n):
        self._audit.note(None, f"file.{verb}")
        self._audit.note(None, "a.one" if n else "a.two")
    def stop(self):
        self._audited(None, "sandbox.stop")
    def _audited(self, caller, action):
        self._audit.note(caller, action)
"""
    assert actions_in(source) == {"file.read", "a.one", "a.two", "sandbox.stop"}
