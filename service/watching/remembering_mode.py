"""Finalizer mode of a source that `remembers`: its objects get our finalizer, and the inventory has what was recognised
of them while they lived. An object that lost our finalizer to another controller's patch is published when it is proven
gone, as in observe mode."""

from collections.abc import Sequence

from service.kubernetes import KubeObject, ServedResource, WatchEvent
from service.watching.assignment import ListStart
from service.watching.finalizer_mode import FinalizerMode
from service.watching.observe_mode import ObserveMode


class RememberingMode:
    """Handler of one list scope: both modes see every object. The record comes first, because the planner needs it."""

    def __init__(self, finalizer_mode: FinalizerMode, observe_mode: ObserveMode) -> None:
        self._finalizer_mode, self._observe_mode = finalizer_mode, observe_mode

    @property
    def owned(self) -> int:
        return self._finalizer_mode.owned

    @property
    def selector(self) -> str:
        return self._finalizer_mode.selector

    async def begin_list(self, served: ServedResource, begun: ListStart) -> None:
        await self._finalizer_mode.begin_list(served, begun)
        await self._observe_mode.begin_list(served, begun)

    async def handle_page(self, served: ServedResource, items: Sequence[KubeObject]) -> None:
        await self._observe_mode.handle_page(served, items)
        await self._finalizer_mode.handle_page(served, items)

    async def end_list(self, served: ServedResource, hold: str) -> None:
        await self._finalizer_mode.end_list(served, hold)
        await self._observe_mode.end_list(served, hold)

    def handle_skipped(self, change: WatchEvent) -> None:
        self._finalizer_mode.handle_skipped(change)

    async def handle_events(self, served: ServedResource, latest: Sequence[WatchEvent]) -> None:
        await self._observe_mode.handle_events(served, latest)
        await self._finalizer_mode.handle_events(served, latest)
