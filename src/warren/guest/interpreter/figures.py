"""A matplotlib backend: open figures become PNG displays at the end of a cell and on `plt.show()`, then close.

matplotlib finds it by its module name. It imports nothing of matplotlib until matplotlib loads it.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import io
import itertools
import os
import sys
from typing import TYPE_CHECKING, Any

from warren.guest.interpreter.display import screen

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

BACKEND = f"module://{__name__}"
_SAVED_DPI = 150


def install() -> None:
    """Make this the backend of matplotlib: now if it is imported, otherwise at its import."""
    # Not by the variable MPLBACKEND: programs that a cell starts inherit it, and may not have this module.
    if "matplotlib" in sys.modules:
        _choose(BACKEND)
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder("matplotlib", lambda _matplotlib: _choose(BACKEND)))


def uninstall(backend: str) -> None:
    """Restore `backend`, which the environment names."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Finder)]
    if "matplotlib" in sys.modules:
        _choose(backend)


def save_to(folder: str) -> None:
    """Make `plt.show()` save every open figure in a folder and close it, whichever backend a program chooses."""
    numbers = itertools.count(1)

    # A function, because pyplot sets attributes on it; not the backend's, because programs choose another.
    def save(*_: object, **__: object) -> None:
        pyplot: Any = sys.modules["matplotlib.pyplot"]
        os.makedirs(folder, exist_ok=True)
        for number in pyplot.get_fignums():
            path = os.path.join(folder, f"figure_{next(numbers)}.png")
            pyplot.figure(number).savefig(path, dpi=_SAVED_DPI, bbox_inches="tight")
        pyplot.close("all")

    def take_over(pyplot: Any) -> None:
        pyplot.show = save

    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None:
        take_over(pyplot)
    else:
        sys.meta_path.insert(0, _Finder("matplotlib.pyplot", take_over))


def show(*_: object, **__: object) -> None:
    """Display every open figure and close it; does nothing with another backend."""
    pyplot: Any = sys.modules.get("matplotlib.pyplot")
    if pyplot is None or not is_any_open() or sys.modules["matplotlib"].get_backend() != BACKEND:
        return
    try:
        for number in pyplot.get_fignums():
            figure = pyplot.figure(number)
            # An empty figure was opened for its side effect.
            if figure.axes or figure.lines or figure.images or figure.texts or figure.patches:
                screen.show("display", _render(figure))
    finally:
        pyplot.close("all")


def is_any_open() -> bool:
    """Whether a figure is open; called after each cell, so it does not go through pyplot."""
    helpers = sys.modules.get("matplotlib._pylab_helpers")
    return helpers is not None and bool(helpers.Gcf.figs)


def __getattr__(name: str) -> Any:
    if name != "FigureCanvas":
        raise AttributeError(name)
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # only where the image has it

    # matplotlib reads it by name first, then copies all names of this module.
    globals()[name] = FigureCanvasAgg
    return FigureCanvasAgg


def _render(figure: Any) -> dict[str, Any]:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", bbox_inches="tight")
    return {"text/plain": repr(figure), "image/png": buffer.getvalue()}


def _choose(backend: str) -> None:
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None:
        pyplot.switch_backend(backend)
    else:
        # The backend is loaded when a figure is first made.
        sys.modules["matplotlib"].rcParams["backend"] = backend


class _Finder(importlib.abc.MetaPathFinder):
    """Runs a function on a module after its import."""

    def __init__(self, name: str, then: Callable[[ModuleType], None]) -> None:
        self._name = name
        self._then = then

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002  # the protocol's
        target: ModuleType | None = None,  # noqa: ARG002  # the protocol's
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._then)
        return spec


class _Loader(importlib.abc.Loader):
    def __init__(self, loader: Any, then: Callable[[ModuleType], None]) -> None:
        self._loader = loader
        self._then = then

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__.loader = module.__loader__ = self._loader  # type: ignore[union-attr]
        self._loader.exec_module(module)
        self._then(module)
