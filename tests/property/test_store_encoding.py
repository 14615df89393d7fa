"""Stored values come back equal, whatever strings, bytes and numbers they hold."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import anyio
from hypothesis import given, settings
from hypothesis import strategies as st

from warren.domain.values import Cause, Display, ExecResult, FileChange, Limits, State
from warren.stores.encoding import dump_json, dump_result, dump_text, load_json, load_result, load_text
from warren.stores.sqlite import SqliteStore
from warren.testing.store_subject import make_entry, make_execution, make_sandbox

if TYPE_CHECKING:
    import pytest

    from warren.domain.records import AuditEntry

# WHY: the default leaves out half surrogate pairs, which file names and program output bring.
TEXT = st.text(st.characters(codec=None, exclude_categories=()), max_size=20)
FLOATS = st.floats(allow_nan=False)
SIZES = st.integers(0, 1 << 70)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | FLOATS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
RESULTS = st.builds(
    ExecResult,
    id=TEXT,
    exit_code=st.none() | st.integers(),
    cause=st.sampled_from(Cause),
    state=st.sampled_from(State),
    stdout=st.binary(max_size=50),
    stderr=st.binary(max_size=50),
    stdout_bytes=SIZES,
    stderr_bytes=SIZES,
    truncated=st.booleans(),
    displays=st.lists(
        st.builds(
            Display, st.dictionaries(TEXT, TEXT, max_size=3), st.dictionaries(TEXT, JSON, max_size=3), st.booleans()
        ),
        max_size=3,
    ).map(tuple),
    error=st.none() | st.dictionaries(TEXT, TEXT, max_size=3),
    limit=st.none() | FLOATS,
    peak=st.none() | FLOATS,
    cells_back=st.integers(),
    protected=st.booleans(),
    why_unprotected=st.none() | TEXT,
    files_changed=st.lists(st.builds(FileChange, TEXT, TEXT, SIZES), max_size=3).map(tuple),
    files_changed_complete=st.booleans(),
    duration_ms=FLOATS,
    cpu_ms=FLOATS,
    hint=st.none() | TEXT,
    notes=st.lists(TEXT, max_size=3).map(tuple),
)
ENTRIES = st.builds(make_entry, subject=TEXT, address=TEXT, at=FLOATS, details=st.dictionaries(TEXT, JSON, max_size=3))


@given(TEXT)
def test_text_comes_back(text: str) -> None:
    assert load_text(dump_text(text)) == text


@given(JSON)
def test_json_comes_back(value: object) -> None:
    assert load_json(dump_json(value)) == value


@given(RESULTS)
def test_a_result_comes_back(result: ExecResult) -> None:
    assert load_result(dump_result(result), result.stdout, result.stderr) == result


@settings(max_examples=15, deadline=None)
@given(st.lists(RESULTS, max_size=4), st.dictionaries(TEXT, TEXT, max_size=3), TEXT, st.lists(ENTRIES, max_size=4))
def test_a_file_gives_back_what_it_was_given(
    tmp_path_factory: pytest.TempPathFactory,
    results: list[ExecResult],
    mapping: dict[str, str],
    text: str,
    entries: list[AuditEntry],
) -> None:
    sandbox = make_sandbox(env=mapping, metadata=mapping, session_key=text, reason=text, limits=Limits(cpus=0.07))

    async def main() -> None:
        store = SqliteStore(tmp_path_factory.mktemp("store"))
        await store.open()
        try:
            await store.add(sandbox)
            assert await store.get(sandbox.id) == sandbox
            assert await store.find(sandbox.owner, text) == sandbox
            for result in results:
                execution = make_execution(sandbox, code=text, kernel=text)
                await store.record(execution)
                await store.record(replace(execution, result=result, finished_at=2.5))
                assert await store.execution(execution.id) == replace(execution, result=result, finished_at=2.5)
            await store.append(*entries)
            assert (await store.verify())[0] == len(entries)
        finally:
            await store.close()

    anyio.run(main)
