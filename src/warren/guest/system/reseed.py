"""Reseed: a process forked from warm imports drops its parent's random state, environment and folder.

Forks of one parent may even have the same process id (each in its own namespace), so nothing here depends on it.
Two things cannot be renewed, and all forks share them: the hash seed and the layout of the address space.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_MT19937_WORDS = 624


def prepare() -> None:
    """Do once, before any fork, the part of `renew_randomness` that is the same in each."""
    ssl = sys.modules.get("ssl")
    if ssl is not None:
        # WHY: it reads the library's configuration and loads its providers: 2 ms and 800 pages.
        # SAFE BECAUSE: it draws no value. Each fork adds its own seed, and then nothing of this state is used.
        ssl.RAND_status()


def renew_randomness() -> None:
    """Reseed every imported source of random values."""
    for name, renew in _RENEW.items():
        module = sys.modules.get(name)
        if module is not None:
            _attempt(renew, module)


def renew_surroundings(search: list[str], *, is_changed: bool = True) -> None:
    """Recompute state that depends on the environment, if it changed, and on the folder; `search` leads sys.path."""
    if is_changed:
        time.tzset()
    for name, refresh in _REFRESH.items() if is_changed else ():
        module = sys.modules.get(name)
        if module is not None:
            _attempt(refresh, module)
    sys.path[:] = ["", *search, *(entry for entry in sys.path if entry and entry not in search)]
    # Finders of these may be older than the folders. Those of the image do not change, and their pages stay shared.
    for folder in (os.getcwd(), *search):
        sys.path_importer_cache.pop(folder, None)


def _attempt(renew: Any, module: Any) -> None:
    # These use internals of other modules: one that has changed must not keep a kernel from starting.
    try:
        renew(module)
    except Exception as error:
        sys.stderr.write(f"warren: {module.__name__} could not be reset after a fork: {error}\n")


def _numpy_random(module: Any) -> None:
    try:
        # A third of the time, and of the written pages, of `seed()`, which goes through several objects.
        key = sys.modules["numpy"].frombuffer(os.urandom(4 * _MT19937_WORDS), "uint32")
        module.set_state(("MT19937", key, _MT19937_WORDS))
    except (TypeError, ValueError):
        module.seed()  # User code has chosen another generator.


def _tempfile(module: Any) -> None:
    module.tempdir = None
    module._name_sequence = None  # noqa: SLF001  # no public way


def _uuid(module: Any) -> None:
    module._node = None  # noqa: SLF001 - no public way
    module._last_timestamp = None  # noqa: SLF001 - no public way


def _mp_process(module: Any) -> None:
    # The key that proves one process of a program to another: shared, a sibling's key would be known.
    module.current_process().authkey = os.urandom(32)
    module.ORIGINAL_DIR = os.getcwd()


def _mp_synchronize(module: Any) -> None:
    import tempfile  # loaded already by the module in hand

    module.SemLock._rand = tempfile._RandomNameSequence()  # type: ignore[attr-defined]  # noqa: SLF001 - no public way


def _locale(module: Any) -> None:
    try:
        module.setlocale(module.LC_CTYPE, "")
    except module.Error:
        module.setlocale(module.LC_CTYPE, "C.UTF-8")


def _site(module: Any) -> None:
    module.USER_BASE = module.USER_SITE = None
    module.getusersitepackages()


def _matplotlib(module: Any) -> None:
    # The folders are found once, from HOME and MPLCONFIGDIR, and remembered in a closure.
    for function in (module.get_configdir, module.get_cachedir):
        variables = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        for name, cell in variables:
            if name == "called":
                cell.cell_contents = False


_RENEW: dict[str, Callable[[Any], None]] = {
    "random": lambda module: module.seed(),
    "numpy.random": _numpy_random,
    "tempfile": _tempfile,
    "uuid": _uuid,
    "ssl": lambda module: module.RAND_add(os.urandom(32), 32.0),
    "multiprocessing.process": _mp_process,
    "multiprocessing.synchronize": _mp_synchronize,
}
_REFRESH = {"locale": _locale, "site": _site, "matplotlib": _matplotlib}
