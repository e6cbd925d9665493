"""Registry of handlers by kind, planners by source, and the limits that each lane draws on (its budget).

Jobs and events without a handler or planner in this process are retried and shown as held.
"""

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any

from service.contract import Draw, Event, Hold, Plan
from workers.handlers.protocol import Consent, Handler, JobStatusListener, Planner


class UnknownKind(Exception):
    """This process has no handler for targets of this kind."""


class HandlerRegistry:
    """`consent` is asked before every destructive call; without one no call is checked against a live object.
    `listener` learns which jobs are held or waiting; `closing` functions are called by `aclose`; `background_tasks` run
    for as long as the worker does. Raises ValueError for two handlers of the same kind."""

    def __init__(
        self,
        handlers: Iterable[Handler],
        planners: Mapping[str, Planner],
        *,
        consent: Consent | None = None,
        listener: JobStatusListener | None = None,
        closing: Iterable[Callable[[], Awaitable[None]]] = (),
        background_tasks: Iterable[Callable[[], Coroutine[Any, Any, None]]] = (),
    ) -> None:
        self.consent, self.listener = consent, listener
        self._closing, self.background_tasks = list(closing), tuple(background_tasks)
        self._handlers: dict[str, Handler] = {}
        for handler in handlers:
            if self._handlers.setdefault(handler.kind, handler) is not handler:
                raise ValueError(f"there are two handlers of kind {handler.kind}; each kind must have one")
        self._planners = dict(planners)
        self._draws: dict[str, tuple[Draw, ...]] = {}

    def handler(self, kind: str) -> Handler:
        found = self._handlers.get(kind)
        if found is None:
            known = ", ".join(sorted(self._handlers)) or "none"
            raise UnknownKind(f"no handler for kind {kind!r} in this process (there is: {known})")
        return found

    def draws(self, lane: str) -> tuple[Draw, ...]:
        """What each job of the lane draws on."""
        known = self._draws.get(lane)
        if known is None:
            if len(self._draws) > 10_000:
                self._draws.clear()
            claims = (handler.draws(lane) for handler in self._handlers.values())
            known = tuple(next((claim for claim in claims if claim is not None), ()))
            self._draws[lane] = known
        return known

    async def plan(self, event: Event) -> Plan | Hold:
        planner = self._planners.get(event.source) or self._planners.get("*")
        if planner is None:
            known = ", ".join(sorted(self._planners)) or "none"
            return Hold(
                f"no planner for source {event.source!r} in this process (there is: {known}); declare that source, "
                f"again if it was renamed or removed, or give this up by `knell held drop`",
                again=True,
            )
        return await planner.plan(event)

    async def aclose(self) -> None:
        """To be called when no handler or planner is used any more."""
        for close in self._closing:
            await close()
