"""Which handler removes which kind, and which planner plans for which source.

What nobody claims is not guessed at: it is retried and shown as held, until a process comes that knows it.
"""

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any

from service.contract import Draw, Event, Hold, Plan
from workers.handlers.protocol import Consent, Handler, Listener, Planner


class UnknownKind(Exception):
    """No handler of this process removes such a target."""


class Registry:
    """Without `consent` no call is checked against a live object: there is none where events come without a cluster.
    `listener` hears what keeps jobs waiting; `closing` is what is to be done when no more is asked;
    `errands` go on beside the work for as long as the worker does."""

    def __init__(
        self,
        handlers: Iterable[Handler],
        planners: Mapping[str, Planner],
        *,
        consent: Consent | None = None,
        listener: Listener | None = None,
        closing: Iterable[Callable[[], Awaitable[None]]] = (),
        errands: Iterable[Callable[[], Coroutine[Any, Any, None]]] = (),
    ) -> None:
        self.consent, self.listener = consent, listener
        self._closing, self.errands = list(closing), tuple(errands)
        self._handlers = {handler.kind: handler for handler in handlers}
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
        """No handler or planner is asked any more."""
        for close in self._closing:
            await close()
