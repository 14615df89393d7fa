"""Progress of long work: a moving bar on a terminal, lines elsewhere."""

from __future__ import annotations

import contextlib
import functools
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from warren.core.images.catalog import BuildStep, Catalog
    from warren.domain.values import Image


def build_with_progress(catalog: Catalog, name: str, *, force: bool = False) -> Image:
    """Build an image, with its progress on standard error."""
    if not sys.stderr.isatty():
        return catalog.build(name, _lines(name), force=force)
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(f"building {name}", total=None)
        began = progress.get_time()
        phase = ""

        def show(step: BuildStep) -> None:
            nonlocal task, phase
            text = f"building {name}: {step.phase} {step.detail}".rstrip()[:80]
            if step.phase != phase:
                # WHY: rich stops the clock of a full bar, and never makes it one without an end again.
                progress.remove_task(task)
                task, phase = progress.add_task(text, total=None), step.phase
                progress.tasks[-1].start_time = began
            progress.update(task, description=text, completed=step.done, total=step.total or None)

        return catalog.build(name, show, force=force)


def _lines(name: str) -> Callable[[BuildStep], None]:
    told: set[str] = set()

    def show(step: BuildStep) -> None:
        if step.phase not in told:
            told.add(step.phase)
            print(f"building {name}: {step.phase}", file=sys.stderr)

    return show


@contextlib.contextmanager
def bar(text: str, *columns: str) -> Iterator[Callable[..., None]]:
    """Show a bar on a terminal, and yield what updates it; `columns` are rich's classes of what follows the bar."""
    if not sys.stderr.isatty():
        yield lambda **_changes: None
        return
    from rich import progress
    from rich.console import Console

    first = (progress.SpinnerColumn(), progress.TextColumn("{task.description}", markup=False), progress.BarColumn())
    rest = (getattr(progress, name)() for name in columns)
    with progress.Progress(*first, *rest, console=Console(stderr=True), transient=True) as shown:
        yield functools.partial(shown.update, shown.add_task(text, total=None))


class Transfer:
    """The progress of a copy, shown on a terminal; calling it notes how many bytes are done, of how many."""

    def __init__(self, update: Callable[..., None], check: Callable[[int], None]) -> None:
        self._update = update
        self._check = check
        self.done = 0

    def __call__(self, done: int, total: int | None) -> None:
        """Note the progress. Raises what the check of the size raises."""
        self._check(done)
        self.done = done
        self._update(completed=done, total=total)


@contextlib.contextmanager
def show_transfer(name: str, check: Callable[[int], None] = lambda _done: None) -> Iterator[Transfer]:
    """Show the progress of a copy for the length of a block."""
    with bar(name[-60:], "DownloadColumn", "TransferSpeedColumn") as update:
        yield Transfer(update, check)


@contextlib.contextmanager
def spinner(text: str) -> Iterator[None]:
    """Show a spinner on a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(text):
        yield
