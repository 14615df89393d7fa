"""Image catalog: the specs, the built images, and builds, each done once and atomically.

<data>/images/<digest>/        a built image: `venv/`, `requirements.lock`, `image.json`
<data>/images/.build-…/        a build in progress, or one whose builder was killed
<data>/images/.lock            held during a build or a removal
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
import shutil
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import warren
from warren.core.images.build import build_folder
from warren.core.images.progress import Build, BuildStep, Stop
from warren.core.images.spec import ImageSpec, Interpreter, load_spec
from warren.domain.errors import BuildFailed, Conflict, NotFound, suggest
from warren.domain.values import Image

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

__all__ = ["BuildStep", "Catalog", "ImageSpec", "ImageStatus", "Stop", "bundled_spec_dir"]

_LOOK_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageStatus:
    """Whether an image is built, and its size."""

    name: str
    digest: str
    built: bool
    size_bytes: int = 0
    built_at: float | None = None
    """Seconds since the epoch."""
    stale: tuple[str, ...] = ()
    """Digests of builds of earlier specs, locks or interpreters that are still on disk."""


@dataclass(frozen=True, slots=True)
class _Built:
    image: Image
    size_bytes: int
    built_at: float


def _quiet(_step: BuildStep) -> None:
    """Report no progress."""


class Catalog:
    """Images of several folders of specs, the first of a name counts, and of Warren's own, built in a data folder."""

    def __init__(self, data_dir: str, spec_dirs: Sequence[str] = ()) -> None:
        self._folder = os.path.join(os.path.abspath(data_dir), "images")
        self._spec_dirs = (*spec_dirs, bundled_spec_dir())
        self._interpreter = Interpreter.running()

    def specs(self) -> tuple[ImageSpec, ...]:
        """Return every spec, by name. Raises InvalidRequest for the first invalid one."""
        return tuple(load_spec(path) for _, path in sorted(self._paths().items()))

    def spec(self, name: str) -> ImageSpec:
        """Return one spec, by its name or an alias. Raises NotFound with the nearest name, or InvalidRequest."""
        paths = self._paths()
        if name in paths:
            return load_spec(paths[name])
        # A tag is a version in some other registry; here a name has one version.
        alias = name.partition(":")[0]
        found = [spec for path in paths.values() if alias in (spec := load_spec(path)).aliases]
        if not found:
            raise NotFound(f"there is no image {name!r}{suggest(name, paths)}")
        # Several images may serve one alias, since a fresh service has built only its default image: the smallest does.
        built = [spec for spec in found if self._load(spec.digest(self._interpreter)) is not None]
        return min(built or found, key=lambda spec: len(spec.packages))

    def status(self, name: str) -> ImageStatus:
        """Return whether the image is built from the current spec."""
        spec = self.spec(name)
        name, digest = spec.name, spec.digest(self._interpreter)
        built = {found.image.digest: found for found in self._built() if found.image.name == name}
        current = built.pop(digest, None)
        return ImageStatus(
            name=name,
            digest=digest,
            built=current is not None,
            size_bytes=0 if current is None else current.size_bytes,
            built_at=None if current is None else current.built_at,
            stale=tuple(sorted(built)),
        )

    def get(self, name: str) -> Image:
        """Return a built image. Raises NotFound with the command that builds it."""
        spec = self.spec(name)
        found = self._load(spec.digest(self._interpreter))
        if found is None:
            raise NotFound(f"image {spec.name} is not built yet: run `warren image build {spec.name}`")
        return dataclasses.replace(found.image, gpus=spec.gpus)

    def find_build(self, digest: str) -> Image | None:
        """Return the build of that digest, current or not."""
        found = self._load(digest)
        return None if found is None else found.image

    def build(
        self,
        name: str,
        progress: Callable[[BuildStep], None] = _quiet,
        *,
        force: bool = False,
        stop: Stop | None = None,
    ) -> Image:
        """Build an image, unless it is built. Concurrent builders wait for the first, and build nothing.

        Raises BuildFailed, with nothing changed, InvalidRequest or NotFound.
        """
        spec = self.spec(name)
        spec.check_interpreter(self._interpreter)
        digest = spec.digest(self._interpreter)
        if not force and (found := self._load(digest)) is not None:
            return found.image
        stop = stop or Stop()
        with self._lock(progress, stop) as lock_fd:
            # SAFE BECAUSE: builders hold the lock, so a leftover folder belongs to a dead one.
            self._sweep()
            if not force and (found := self._load(digest)) is not None:
                return found.image
            return self._build(spec, digest, progress, lock_fd, stop)

    def remove(self, name: str, *, stale_only: bool = False, in_use: Collection[str] = ()) -> int:
        """Delete all builds of an image, or only stale ones, and return the bytes freed. The spec stays.

        Raises Conflict, and deletes nothing, when a digest is `in_use`: its sandboxes could import no more modules.
        """
        spec = self.spec(name)
        name, current = spec.name, spec.digest(self._interpreter)
        with self._lock(_quiet, Stop()):
            self._sweep()
            doomed = [found for found in self._built() if found.image.name == name]
            doomed = [found for found in doomed if not (stale_only and found.image.digest == current)]
            if any(found.image.digest in in_use for found in doomed):
                raise Conflict(f"image {name} is in use: end the sandboxes that are made from it first")
            for found in doomed:
                self._discard(found.image.path)
        return sum(found.size_bytes for found in doomed)

    def _paths(self) -> dict[str, str]:
        paths: dict[str, str] = {}
        for folder in self._spec_dirs:
            for file in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
                if file.endswith(".toml"):
                    paths.setdefault(file.removesuffix(".toml"), os.path.join(folder, file))
        return paths

    def _build(
        self, spec: ImageSpec, digest: str, progress: Callable[[BuildStep], None], lock_fd: int, stop: Stop
    ) -> Image:
        target = os.path.join(self._folder, digest)
        work = os.path.join(self._folder, f".build-{digest}-{os.getpid()}")
        image = Image(
            name=spec.name,
            digest=digest,
            path=target,
            root=spec.root,
            interpreter_prefix=self._interpreter.prefix,
            interpreter_inside=self._interpreter.inside,
            preload=spec.preload,
            env=dict(spec.env),
        )
        try:
            os.mkdir(work, 0o755)
            build_folder(
                Build(
                    spec=spec, interpreter=self._interpreter, folder=work, progress=progress, lock_fd=lock_fd, stop=stop
                )
            )
            _write_record(work, _Built(image, _size(work), time.time()))
            # WHY: the files must reach the disk before the rename that announces them.
            os.sync()
            self._discard(target)
            os.rename(work, target)
        except OSError as exc:
            why = "the disk is full: make room" if exc.errno == errno.ENOSPC else str(exc).partition("\n")[0]
            raise BuildFailed(f"image {spec.name} could not be built: {why}") from exc
        finally:
            shutil.rmtree(work, ignore_errors=True)
        progress(BuildStep("done", digest))
        return image

    def _built(self) -> Iterator[_Built]:
        names = sorted(os.listdir(self._folder)) if os.path.isdir(self._folder) else []
        for name in names:
            found = None if name.startswith(".") else self._load(name)
            if found is not None:
                yield found

    def _load(self, digest: str) -> _Built | None:
        path = os.path.join(self._folder, digest)
        try:
            with open(os.path.join(path, "image.json"), encoding="utf-8") as file:
                values: dict[str, Any] = json.load(file)
            image = Image(**{**values["image"], "path": path, "preload": tuple(values["image"]["preload"])})
            return _Built(image, values["size_bytes"], values["built_at"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    @contextlib.contextmanager
    def _lock(self, progress: Callable[[BuildStep], None], stop: Stop) -> Iterator[int]:
        try:
            os.makedirs(self._folder, 0o755, exist_ok=True)
            lock = os.open(os.path.join(self._folder, ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as exc:
            raise BuildFailed(
                f"{self._folder} cannot be written: {exc.strerror}. Set WARREN_DATA_DIR to a folder that can"
            ) from exc
        try:
            while not _try_lock(lock):
                progress(BuildStep("waiting", "for another build"))
                stop.wait(_LOOK_S)
            yield lock
        finally:
            os.close(lock)

    def _sweep(self) -> None:
        for name in os.listdir(self._folder):
            if name.startswith((".build-", ".old-")):
                shutil.rmtree(os.path.join(self._folder, name), ignore_errors=True)

    def _discard(self, path: str) -> None:
        """Rename a build away before its deletion: a half-deleted one must not look built."""
        old = os.path.join(self._folder, f".old-{os.path.basename(path)}-{os.getpid()}")
        try:
            os.rename(path, old)
        except FileNotFoundError:
            return
        shutil.rmtree(old, ignore_errors=True)


def _try_lock(lock: int) -> bool:
    import fcntl  # which Windows does not have, where commands import this module too

    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def bundled_spec_dir() -> str:
    """Return the folder of Warren's own specs: in the wheel, or beside the source."""
    package = os.path.dirname(os.path.abspath(warren.__file__))
    packed = os.path.join(package, "catalog")
    return packed if os.path.isdir(packed) else os.path.normpath(os.path.join(package, "..", "..", "images"))


def _write_record(folder: str, built: _Built) -> None:
    image = dataclasses.asdict(built.image)
    # From the spec of the moment when a sandbox is created.
    del image["gpus"]
    values = {"image": image, "size_bytes": built.size_bytes, "built_at": built.built_at}
    with open(os.path.join(folder, "image.json"), "w", encoding="utf-8") as file:
        json.dump(values, file, indent=2)
    os.chmod(file.name, 0o644)


def _size(folder: str) -> int:
    return sum(
        os.lstat(os.path.join(parent, name)).st_blocks * 512 for parent, _, files in os.walk(folder) for name in files
    )
