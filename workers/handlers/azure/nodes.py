"""Whether a Node says that a machine lives: one that is Ready, or was until a while ago, protects its machine.
Nodes are read fresh; what can't be read protects, and says so."""

import asyncio
import math
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import msgspec

from service.contract.azure import NODES
from service.kubernetes import ClusterError, Seen, Unreadable
from workers.handlers.places import Place, Places, Shared

SCHEME: Final = "azure://"


class _Condition(msgspec.Struct, frozen=True, rename="camel"):
    type: str = ""
    status: str = ""
    last_transition_time: datetime | None = None


class _Spec(msgspec.Struct, frozen=True):
    provider_id: str = msgspec.field(default="", name="providerID")


class _Status(msgspec.Struct, frozen=True):
    conditions: tuple[_Condition, ...] = ()


class _Node(msgspec.Struct, frozen=True):
    spec: _Spec = _Spec()
    status: _Status = _Status()


class _Stand(msgspec.Struct, frozen=True):
    """Which machine a Node runs on, and since when it is not ready; None: it is, or does not say."""

    name: str
    machine: str
    not_ready: datetime | None


_node: Final = msgspec.json.Decoder(_Node)


class Protection(NamedTuple):
    """Why a machine must stay; what `waits` ends without a person, if its Node stays as it is."""

    why: str
    waits: bool = False


class Nodes:
    def __init__(self, places: Places, not_ready: timedelta) -> None:
        self._places, self._not_ready = places, not_ready
        self._lists = Shared[str, dict[str, _Stand]](self._listed)

    async def protects(self, source: str, machine: str, node: str) -> Protection | None:
        """Why a machine (its id in small letters) must stay, None where no Node speaks for it. `node` is how it names
        itself: where the Node has that name, it is found by one read."""
        place = self._places.of(source)
        if place is None:
            return Protection(f"its Node can't be read: there is no way to the cluster of source {source}")
        try:
            stand = await self._named(place, node) if node else None
            # One that does not say yet on which machine it runs has its name.
            if stand is not None and stand.machine in ("", machine) and (why := await self._speaks(place, stand)):
                return why
            stand = (await self._all(source)).get(machine)
            return await self._speaks(place, stand) if stand is not None else None
        except ClusterError as error:
            return Protection(f"its Node can't be read: {type(error).__name__}: {error}")

    async def aclose(self) -> None:
        await self._lists.aclose()

    async def _speaks(self, place: Place, stand: _Stand) -> Protection | None:
        if stand.not_ready is None:
            return Protection(f"Node {stand.name} runs on it and is Ready, or does not say that it is not")
        # The server's clock has written both times.
        gone = await place.cluster.server_time() - stand.not_ready
        if gone < self._not_ready:
            minutes = self._not_ready / timedelta(minutes=1)
            words = f"Node {stand.name} runs on it, and is not ready for less than {minutes:g} minutes"
            return Protection(words, waits=True)
        return None

    async def _named(self, place: Place, name: str) -> _Stand | None:
        found = await place.get(NODES, "", name)
        return None if found is None else _stand(found)

    async def _all(self, source: str) -> dict[str, _Stand]:
        return await asyncio.shield(self._lists.ask(source))

    async def _listed(self, source: str) -> dict[str, _Stand]:
        """By machine. Of each Node no more is kept than this."""
        place = self._places.of(source)
        if place is None:
            raise LookupError(f"no way to the cluster of source {source}")
        served = await place.served(NODES)
        found: dict[str, _Stand] = {}
        async for page in place.cluster.pages(served, None):
            if page.unreadable:
                raise Unreadable(f"not every Node could be read: {page.unreadable[0]}")
            for seen in page.items:
                stand = _stand(seen)
                before = found.get(stand.machine)
                # Of several that name one machine, the one that speaks for it the most.
                found[stand.machine] = stand if before is None else max(before, stand, key=_readiness)
        return found


def _readiness(stand: _Stand) -> float:
    return math.inf if stand.not_ready is None else stand.not_ready.timestamp()


def _stand(seen: Seen) -> _Stand:
    try:
        node = _node.decode(seen.raw)
    except msgspec.DecodeError as error:
        raise Unreadable(f"Node {seen.name} can't be read: {error}") from None
    machine = node.spec.provider_id.removeprefix(SCHEME).lower()
    ready = next((one for one in node.status.conditions if one.type == "Ready"), None)
    since = ready.last_transition_time if ready is not None and ready.status in ("False", "Unknown") else None
    return _Stand(seen.name, machine, since)
