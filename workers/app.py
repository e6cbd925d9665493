"""Composition root of the consuming side: opens the collectors of the settings' sources with their providers, and hands
out what `knell work`, `run`, `plan`, `sweep`, `kept` and `doctor` need of them. A collector's module is imported by the
name in its source's declaration, so that an SDK is loaded only where a source needs it."""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from datetime import timedelta
from importlib import import_module
from typing import Any, Final, cast

from service.contract.checks import CheckResult
from service.engine.guard import Guard
from service.engine.installation import Installation
from service.engine.kept_store import KeptStore
from service.kubernetes import KubernetesClient, RecentObjects
from service.settings import Settings
from service.sources.registry import source_named
from workers.handlers.collector import Collector, EmptyCollector
from workers.handlers.components import (
    CallBudgets,
    Components,
    Context,
    ExistsCheck,
    GuardCheck,
    OpenComponents,
    P,
    Provider,
)
from workers.handlers.kept_resources import KeptRecords, NoKeptRecords, RetainedTags
from workers.handlers.orphans import OrphanFinder
from workers.handlers.protocol import Handler
from workers.handlers.registry import HandlerRegistry
from workers.handlers.source_clusters import SourceClusters
from workers.judging.registry_builder import build_registry, build_source_clusters, guard_check
from workers.runtime.call_budget import CallBudget
from workers.sweeps.sweeper import build_sweeper

COMMAND_PATIENCE: Final = timedelta(hours=1)
"""How long a command of an operator waits for a list: as long as it takes."""


class App:
    """The opened collectors, by name. It is also the `Context` that they are built from."""

    def __init__(
        self,
        settings: Settings,
        clusters: Mapping[str, KubernetesClient],
        installation: Installation,
        stack: AsyncExitStack,
        *,
        counted: bool,
    ) -> None:
        self._clusters, self._installation, self._stack = clusters, installation, stack
        self._providers: dict[Callable[..., object], Provider] = {}
        self.components: dict[str, Components] = {}
        self.settings = settings
        self.source_clusters: SourceClusters = build_source_clusters(
            settings, clusters, installation, os_errors=not counted
        )
        self.budgets: CallBudgets | None = None
        self.kept_records: KeptRecords = NoKeptRecords()
        self.guard_check: GuardCheck | None = None
        self.patience: timedelta | None = COMMAND_PATIENCE
        if counted:
            self.budgets = CallBudget(installation.budgets, settings.worker.background_share)
            self.kept_records = KeptStore(installation)
            self.guard_check = guard_check(Guard(installation), settings)
            self.patience = None

    # ---- opening

    async def provider(self, opened: Callable[[Context], AbstractAsyncContextManager[P]]) -> P:
        if opened not in self._providers:
            self._providers[opened] = await self._stack.enter_async_context(opened(self))
        return cast("P", self._providers[opened])

    async def open(self, name: str) -> None:
        """Opens a collector that has a declaration. Raises what its module raises."""
        source = source_named(name)
        if source.name != name or name in self.components:
            return
        if not source.components:
            self.components[name] = Components(collector=EmptyCollector(name))
            return
        open_components: OpenComponents = import_module(source.components).components
        found = await self._stack.enter_async_context(open_components(self))
        if source.swept != (found.orphans is not None):
            raise TypeError(f"source {name}: `swept` of its declaration and `orphans` of its components must agree")
        self.components[name] = found

    # ---- what was opened

    @property
    def collectors(self) -> list[Collector]:
        return [one.collector for one in self.components.values()]

    @property
    def handlers(self) -> list[Handler]:
        """Those of the providers' kinds, then those that collectors have of their own."""
        return [
            *(handler for provider in self._providers.values() for handler in provider.handlers),
            *(handler for one in self.components.values() for handler in one.handlers),
        ]

    @property
    def retained_tags(self) -> dict[str, RetainedTags]:
        """By name of the provider."""
        return {provider.name: provider.retained_tags for provider in self._providers.values()}

    def exists_check(self, name: str) -> ExistsCheck | None:
        return self.components[name].exists if name in self.components else None

    def orphan_finder(self, source: str) -> OrphanFinder:
        """Raises LookupError for a source that is not swept."""
        found = self.components.get(self.settings.sources[source].collector)
        if found is None or found.orphans is None:
            raise LookupError(f"source {source} is not swept")
        return found.orphans

    async def run_checks(self) -> AsyncIterator[CheckResult]:
        """The checks of all opened collectors, for `knell doctor`."""
        for one in self.components.values():
            if one.checks is not None:
                async for result in one.checks():
                    yield result

    # ---- the worker

    def registry(self, recent_objects: RecentObjects | None = None) -> HandlerRegistry:
        """Handlers, planners and sweeps of a worker. `recent_objects` are those of a watcher in the same process."""
        return build_registry(
            self.settings, self._clusters, self._installation, handlers=self.handlers, collectors=self.collectors,
            recent_objects=recent_objects, source_clusters=self.source_clusters, background_tasks=self._sweep_loops(),
        )  # fmt: skip

    def _sweep_loops(self) -> list[Callable[[], Coroutine[Any, Any, None]]]:
        """One loop for each swept source; a Lease decides which process sweeps."""
        swept = [name for name, one in self.settings.sources.items() if source_named(one.collector).swept]
        finders = {source: self.orphan_finder(source) for source in swept}
        return [
            build_sweeper(self.settings, self._installation, self.source_clusters, finder, source).run
            for source, finder in finders.items()
            if finder.schedule(source).enabled
        ]


@asynccontextmanager
async def open_app(
    settings: Settings,
    clusters: Mapping[str, KubernetesClient],
    installation: Installation,
    *,
    collectors: Iterable[str] | None = None,
    counted: bool = True,
) -> AsyncIterator[App]:
    """Opens the collectors of all sources, or the named ones. They are opened also while a source's feature is off, so
    that existing jobs are held by policy and not for lack of a handler.

    `clusters` are the connected clusters by name; it may be filled later. Unless calls are `counted`, no budget is
    drawn on, and neither the guard nor the decisions to keep resources are read: for commands that only show something.
    The identity of a cluster then raises OSError if Redis can't be reached.
    """
    wanted = (source.collector for source in settings.sources.values()) if collectors is None else collectors
    async with AsyncExitStack() as stack:
        app = App(settings, clusters, installation, stack, counted=counted)
        stack.push_async_callback(app.source_clusters.aclose)
        for name in dict.fromkeys(wanted):
            await app.open(name)
        yield app
