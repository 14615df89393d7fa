"""Changed files: one scan of the workspace against the one before it, within a budget of entries and time.

Large workspaces are scanned from the top down. A folder that the budget does not reach keeps its known state, and the
scan is marked incomplete; it never reports a file that it did not see. A file's mark holds its change time, which,
unlike its modification time, no program can set: an execution cannot hide what it did to a file.

The clock of that time ticks every few milliseconds (Linux 6.13 is finer for most file systems). A file that changed in
the tick in which an execution begins may change again without another time, so for these the content is compared.
"""

from __future__ import annotations

import itertools
import os
import stat
import time
from collections import deque
from typing import Any

MAX_ENTRIES = 20_000
MAX_SECONDS = 0.040
MAX_BUSY_SECONDS = 0.200
"""Wall-clock bound where the processor is busy or the disk is slow: a small workspace is still scanned."""
MAX_CHANGES = 1000
_TICK_NS = 20_000_000
"""The clock that stamps files may be this much behind."""
_CLOCK = 5
"""CLOCK_REALTIME_COARSE, the clock that stamps files; Python has no name for it."""
_MAX_KEPT = 64
_MAX_KEPT_BYTES = 16 << 10
"""Files whose content is kept while their marks are ambiguous, and the largest size of each."""
_PACKAGES = ".packages"
"""The folder of packages that the sandbox installed: thousands of files, of no interest as changes."""
_MODULES = "node_modules"
"""The same for npm, in any folder."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

_Mark = tuple[int, int, int]
_Folder = dict[str, _Mark]


class Changes:
    """The known files of a workspace; `scan` returns the differences since the last scan."""

    def __init__(self, workspace_path: str) -> None:
        self._root = workspace_path
        self._folders: dict[str, _Folder] = {}
        self._complete = True
        self._scanned_ns = 0
        self._young: set[str] = set()
        """Files that may change again without another mark."""
        self._kept: dict[str, bytes] = {}
        """Their content when an execution began."""
        self.ignored: set[str] = set()
        """Names of the agent's own temporary files."""
        self.scan()

    def begin(self) -> None:
        """Prepare for an execution: its changes must be distinguishable from earlier ones."""
        if not self._young:
            return
        tick = self._read_clock()
        still = [path for path in self._young if path not in self._kept and self._is_young(path, tick)]
        for path in itertools.islice(still, _MAX_KEPT - len(self._kept)):
            content = self._read(path)
            if content is not None:
                self._kept[path] = content

    def scan(self) -> tuple[list[dict[str, Any]], bool]:
        """Return the files created, modified or deleted since the last scan, and whether the list is complete."""
        started_ns, tick = time.time_ns(), self._read_clock()
        look = self._look("")
        changes = self._find_hidden(look)
        for path, files in look.folders.items():
            self._compare(path, files, changes)
        if look.cut is not None:
            changes += self._recent(*look.cut)
        for path in self._gone(look):
            changes += [_change(path, name, "deleted") for name in self._folders.pop(path)]
        self._folders.update(look.folders)
        self._complete = look.complete
        self._scanned_ns = started_ns
        self._kept.clear()
        changed = {str(change["path"]) for change in changes}
        self._young = {path for path in changed | self._young if self._is_young(path, tick)}
        changes.sort(key=lambda change: str(change["path"]))
        return changes[:MAX_CHANGES], look.complete and len(changes) <= MAX_CHANGES

    def adopt(self, path: str) -> None:
        """Record the current state of `path` as known: a gateway changed it, not an execution."""
        path = "" if path == "." else path
        tick = self._read_clock()
        self._kept.pop(path, None)
        folder, _, name = path.rpartition("/")
        if path in self._folders:
            for known in [known for known in self._folders if not path or f"{known}/".startswith(f"{path}/")]:
                del self._folders[known]
        files = self._folders.get(folder, {})
        try:
            info = os.lstat(os.path.join(self._root, path))
        except OSError:
            files.pop(name, None)
            return
        if stat.S_ISDIR(info.st_mode):
            look = self._look(path)
            self._folders.update(look.folders)
            self._complete = self._complete and look.complete
            for each, found in look.folders.items():
                self._young.update(_join(each, file) for file, mark in found.items() if mark[0] >= tick)
        else:
            if self._complete:
                # The folder came with the file, after the last scan.
                files = self._folders.setdefault(folder, files)
            files[name] = (info.st_ctime_ns, info.st_size, info.st_ino)
            if self._is_young(path, tick):
                self._young.add(path)

    def _look(self, start: str) -> _Look:
        return _Look(self._root, start, self.ignored)

    def _read_clock(self) -> int:
        """Return the time with which a file would be stamped now."""
        return time.clock_gettime_ns(_CLOCK)

    def _is_young(self, path: str, tick: int) -> bool:
        """Return whether a change of the file now may leave its mark unchanged."""
        folder, _, name = path.rpartition("/")
        mark = self._folders.get(folder, {}).get(name)
        return mark is not None and mark[0] >= tick

    def _read(self, path: str) -> bytes | None:
        """Return the content of a small file; None for any other."""
        try:
            # SAFE BECAUSE: only a regular file is read, as the same user, and the content is only compared.
            fd = os.open(os.path.join(self._root, path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            info = os.fstat(fd)
            is_small = stat.S_ISREG(info.st_mode) and info.st_size <= _MAX_KEPT_BYTES
            return os.read(fd, _MAX_KEPT_BYTES) if is_small else None
        except OSError:
            return None
        finally:
            os.close(fd)

    def _find_hidden(self, look: _Look) -> list[dict[str, Any]]:
        """List the files with another content and the same mark."""
        found = []
        for path, content in self._kept.items():
            folder, _, name = path.rpartition("/")
            mark = look.folders.get(folder, {}).get(name)
            if mark is not None and mark == self._folders.get(folder, {}).get(name) and self._read(path) != content:
                found.append(_change(folder, name, "modified", mark[1]))
        return found

    def _compare(self, path: str, files: _Folder, changes: list[dict[str, Any]]) -> None:
        known = self._folders.get(path)
        if known == files:
            return
        if known is None and not self._complete:
            changes += self._recent(path, files)
            return
        known = known or {}
        for name, mark in files.items():
            before = known.get(name)
            if before != mark:
                changes.append(_change(path, name, "created" if before is None else "modified", mark[1]))
        changes += [_change(path, name, "deleted") for name in known.keys() - files.keys()]

    def _recent(self, path: str, files: _Folder) -> list[dict[str, Any]]:
        """Decide by time, where an earlier scan may not have been, or this one was cut short."""
        since = self._scanned_ns - _TICK_NS
        return [_change(path, name, "modified", mark[1]) for name, mark in files.items() if mark[0] >= since]

    def _gone(self, look: _Look) -> list[str]:
        """List known folders that are gone, and not only beyond the budget: their parent has been read."""
        gone: set[str] = set()
        for path in sorted(self._folders.keys() - look.found):
            above = path.rpartition("/")[0]
            if above in look.folders or above in gone:
                gone.add(path)
        return sorted(gone - {""})


class _Look:
    """One scan of a folder and everything below it, breadth first, until the budget is spent."""

    def __init__(self, root: str, start: str, ignored: set[str]) -> None:
        self.folders: dict[str, _Folder] = {}
        """Folders that were read completely."""
        self.found = {start}
        self.complete = True
        self.cut: tuple[str, _Folder] | None = None
        """The folder at which the budget ran out, and the part of it that was read."""
        self._ignored = ignored
        self._left = MAX_ENTRIES
        self._began, self._worked = time.monotonic(), time.thread_time()
        self._queue = deque([start])
        while self._queue and self.complete:
            if self._is_late():
                self.complete = False
                return
            self._open(root, self._queue.popleft())

    def _is_late(self) -> bool:
        passed = time.monotonic() - self._began
        if passed <= MAX_SECONDS:
            return False
        return passed > MAX_BUSY_SECONDS or time.thread_time() - self._worked > MAX_SECONDS

    def _open(self, root: str, path: str) -> None:
        try:
            # SAFE BECAUSE: only names and sizes are read, as the same user that could swap a folder for a link.
            place = os.open(os.path.join(root, path), _FOLDER)
        except OSError:
            return
        try:
            files: _Folder = {}
            self._read(place, f"{path}/" if path else "", files)
        except OSError:
            return
        finally:
            os.close(place)
        if self.complete:
            self.folders[path] = files
        else:
            self.cut = (path, files)

    def _read(self, place: int, prefix: str, files: _Folder) -> None:
        ignored = self._ignored
        with os.scandir(place) as entries:
            for entry in entries:
                self._left -= 1
                if not self._left & 0xFF and (self._left <= 0 or self._is_late()):
                    self.complete = False
                    return
                name = entry.name
                if name in ignored:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    if name == _MODULES or (name == _PACKAGES and not prefix):
                        continue
                    self.found.add(prefix + name)
                    self._queue.append(prefix + name)
                    continue
                try:
                    info = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                files[name] = (info.st_ctime_ns, info.st_size, info.st_ino)


def _change(folder: str, name: str, action: str, size: int = 0) -> dict[str, Any]:
    return {"path": _join(folder, name), "action": action, "size": size}


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name
