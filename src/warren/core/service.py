"""The service: all use cases over one engine and one store, built once. Nothing in here knows HTTP."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from typing import TYPE_CHECKING, Any, Self, TypeVar

import anyio

from warren.blobs.filesystem import Blobs
from warren.core.audit.log import Audit
from warren.core.audit.retention import Retention
from warren.core.callbacks.callbacks import ToolCallbacks
from warren.core.callbacks.targets import Targets
from warren.core.concurrency.admission import Admission
from warren.core.egress.control import EgressControl
from warren.core.egress.policy_table import EgressPolicies
from warren.core.egress.proxy import EgressProxy
from warren.core.executions.executions import Executions
from warren.core.executions.jobs import Jobs
from warren.core.executions.kernels import Kernels
from warren.core.executions.oneshot import OneShots
from warren.core.executions.terminals import Terminals
from warren.core.files.files import Files
from warren.core.files.stored import StoredFiles
from warren.core.identity.keys import Keys
from warren.core.image_builds import ImageBuilds
from warren.core.images.cache import ImageCache
from warren.core.packages.install import Packages
from warren.core.packages.setup import PackageDoor, PackageSetup
from warren.core.policy.free_space import FreeSpace
from warren.core.policy.policy import RenderPolicy
from warren.core.ports.ports import Ports
from warren.core.sandboxes.connections import AgentConnections
from warren.core.sandboxes.pool import SandboxPool
from warren.core.sandboxes.reaper import Reaper
from warren.core.sandboxes.recovery import recover
from warren.core.sandboxes.sandboxes import Sandboxes
from warren.core.shared_links.shared_links import SharedLinks
from warren.core.shared_links.signing_keys import SigningKeys
from warren.core.skills.install import SkillInstallation
from warren.core.skills.registry import Skills
from warren.core.slides.browser_pool import BrowserPool
from warren.core.slides.renders import Renders
from warren.core.telemetry.counters import Counters
from warren.core.telemetry.tracing import Tracer
from warren.domain.egress import PACKAGES_HOST
from warren.domain.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine

    from warren.core.identity.tokens import Tokens
    from warren.core.images.catalog import Catalog
    from warren.core.policy.policy import Policy
    from warren.engines.base import Engine
    from warren.stores.base import Store

T = TypeVar("T")

_log = logging.getLogger(__name__)


class Service:
    """One service over one engine and one store. `async with` opens, recovers and serves; leaving ends no sandbox."""

    is_draining = False
    """True once the service is stopping: it finishes what it has, and refuses everything new."""

    def __init__(
        self,
        *,
        engine: Engine,
        store: Store,
        images: Catalog,
        policy: Policy,
        tokens: Tokens | None = None,
        signing: SigningKeys | None = None,
        tracer: Tracer | None = None,
        blobs_dir: str,
        space: FreeSpace | None = None,
        render_policy: RenderPolicy | None = None,
        packages: PackageSetup | None = None,
        render_program: str | None = None,
    ) -> None:
        self.engine = engine
        self.store = store
        self.images = ImageCache(images)
        self.policy = policy
        self.space = space or FreeSpace()
        self.observer = Counters()
        self.tracer = tracer or Tracer()
        self.started_at = time.time()
        self.connections = AgentConnections(engine)
        self.audit = Audit(store, policy)
        self.keys = Keys(store, self.audit)
        self.tokens = tokens
        self.admission = Admission(store, policy, self.observer)
        self.pool = SandboxPool(engine, store, self.connections, self.images, policy)
        self.sandboxes = Sandboxes(
            engine=engine,
            store=store,
            connections=self.connections,
            pool=self.pool,
            images=self.images,
            admission=self.admission,
            audit=self.audit,
            policy=policy,
            space=self.space,
            observer=self.observer,
            tracer=self.tracer,
        )
        self._build_executions(os.path.join(blobs_dir, "egress.journal"))
        self._build_keeping(blobs_dir, images)
        self._build_uses(signing or SigningKeys())
        self._build_packages(packages or PackageSetup(folder=os.path.join(blobs_dir, "packages")))
        self._build_renders(render_policy or RenderPolicy(), render_program)
        self.retention = Retention(store, self.audit, policy)
        self.reaper = Reaper(self.sandboxes.transitions, store, self.audit, policy)
        self._open = contextlib.AsyncExitStack()

    def beside(self, kind: type[T]) -> T:
        """Return the one object of a class that a dialect keeps with this service: in memory, and gone with it."""
        if kind not in self._beside:
            self._beside[kind] = kind()
        found: T = self._beside[kind]
        return found

    def _build_executions(self, journal_path: str) -> None:
        """Build executions and egress, whose refusals are hints in results."""
        policies = EgressPolicies(self.sandboxes.transitions.live_sandboxes, self.policy)
        self.egress = EgressControl(self.sandboxes, self.store, self.audit, policies)
        self.egress_proxy = EgressProxy(
            policies, self.audit, self.observer, self.policy, self.engine, journal_path=journal_path
        )
        self.connections.on_open.append(self.egress_proxy.attach)
        self.executions = Executions(
            store=self.store,
            sandboxes=self.sandboxes,
            connections=self.connections,
            admission=self.admission,
            audit=self.audit,
            policy=self.policy,
            observer=self.observer,
            tracer=self.tracer,
            egress=policies,
        )

    def _build_keeping(self, folder: str, catalog: Catalog) -> None:
        """Build what the service keeps apart from sandboxes: stored files, skills and images."""
        self._beside: dict[type, Any] = {}
        files, packages = (Blobs(os.path.join(folder, name), self.space.check) for name in ("files", "skills"))
        self.stored_files = StoredFiles(self.store, files, self.audit, self.policy)
        self.skills = Skills(self.store, packages, self.audit, self.policy)
        self.image_builds = ImageBuilds(
            catalog=catalog, images=self.images, store=self.store, pool=self.pool, engine=self.engine, audit=self.audit
        )

    def _build_uses(self, signing: SigningKeys) -> None:
        """Build the uses of sandboxes: one-shots, kernels, terminals, files, callbacks, ports and shared links."""
        self.oneshots = OneShots(self.sandboxes, self.executions)
        self.jobs = Jobs(self.sandboxes, self.executions, self.oneshots, self.stored_files)
        self.kernels = Kernels(self.sandboxes, self.audit)
        self.terminals = Terminals(self.sandboxes, self.audit)
        self.skill_installation = SkillInstallation(self.skills, self.sandboxes, self.audit)
        self.files = Files(self.sandboxes, self.audit, self.observer)
        targets = Targets(self.policy.callback_hosts)
        self.callbacks = ToolCallbacks(self.sandboxes, self.store, self.audit, targets, self.observer)
        self.connections.on_open.append(self.callbacks.attach)
        self.ports = Ports(self.sandboxes, self.audit, self.observer)
        self.sharing = SharedLinks(self.sandboxes, self.keys, self.audit, signing, max_s=self.policy.link_max_s)

    def _build_packages(self, setup: PackageSetup) -> None:
        self.package_index = PackageDoor(setup, self.observer)
        self.egress_proxy.inner[PACKAGES_HOST] = self.package_index
        policies = self.egress.policies
        self.packages = Packages(self.sandboxes, self.executions, policies, self.engine, setup.timeout_s)

    def _build_renders(self, policy: RenderPolicy, program: str | None) -> None:
        self.browsers = BrowserPool(self.engine, self.store, self.connections, self.images, policy, program=program)
        self.renders = Renders(self.browsers, self.store, self.stored_files, self.audit, policy, observer=self.observer)

    async def __aenter__(self) -> Self:
        """Open everything. Raises EngineUnavailable and StoreError, each with one sentence that names the remedy."""
        async with contextlib.AsyncExitStack() as opening:
            opening.push_async_callback(self.tracer.close)
            await self.store.open()
            opening.push_async_callback(_shielded, self.store.close)
            await self.engine.open()
            opening.push_async_callback(_shielded, self.engine.close)
            opening.push_async_callback(_shielded, self._close_audit)
            await opening.enter_async_context(_running(self.audit.run))
            if self.tokens is not None:
                await opening.enter_async_context(_running(self.tokens.run))
            await opening.enter_async_context(self.connections)
            await opening.enter_async_context(self.executions)
            self.sandboxes.transitions.before_end = self.executions.end_all
            await opening.enter_async_context(self.oneshots)
            await opening.enter_async_context(self.image_builds)
            opening.push_async_callback(self.browsers.drain)
            await opening.enter_async_context(self.renders)
            await opening.enter_async_context(self.package_index)
            await self.callbacks.load()
            await self._load_egress()
            counts = await recover(self.sandboxes.transitions, self.engine, self.store, self.executions.adopt)
            await self.executions.lose_rest()
            _log.info("service.recovered", extra=counts)
            opening.push_async_callback(self.pool.drain)
            await opening.enter_async_context(
                _running(
                    self.pool.run,
                    self.reaper.run,
                    self.ports.run,
                    self.retention.run,
                    self.stored_files.run,
                    self.skills.run,
                    self.egress.run,
                    self.egress_proxy.run,
                    self.browsers.run,
                    self.renders.run,
                )
            )
            self._open = opening.pop_all()
        return self

    async def __aexit__(self, *_raised: object) -> None:
        """Flush pending writes and close. Sandboxes, and executions in the background, live on."""
        self.drain()
        # Not in one shield: task groups are open, and their scopes must end in reverse order.
        await self._open.aclose()

    def drain(self) -> None:
        """Begin to stop: health checks say so from now on, and everything new is refused."""
        self.is_draining = True
        self.admission.close()

    def at_end(self, end: Callable[[], Awaitable[None]]) -> None:
        """Register a callback that runs before everything else is closed."""
        self._open.push_async_callback(end)

    async def _load_egress(self) -> None:
        await self.egress.load()
        await self.egress_proxy.load(self.store)

    async def _close_audit(self) -> None:
        try:
            await self.audit.close()
        except StoreError as error:
            _log.error("audit.incomplete", extra={"reason": str(error)})


async def _shielded(close: Callable[[], Awaitable[None]]) -> None:
    with anyio.CancelScope(shield=True):
        await close()


@contextlib.asynccontextmanager
async def _running(*loops: Callable[[], Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
    """Run loops beside the body, and cancel them after it."""
    async with anyio.create_task_group() as tasks:
        for loop in loops:
            tasks.start_soon(loop)
        try:
            yield
        finally:
            tasks.cancel_scope.cancel()
