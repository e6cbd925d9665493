"""Shares of a source, and their distribution over the replicas. The share of an object is a function of its namespace,
so that all replicas agree on it; a replica that holds too many shares hands some over to those that have fewer."""

import asyncio
import math
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from service.contract.names import part_of, share_lease
from service.engine.batch_reads import server_ms
from service.engine.installation import Installation
from service.settings import SourceSettings


@dataclass(frozen=True, slots=True)
class Share:
    """One part of a source, counted from 0. An undivided source has one part."""

    source: str
    part: int = 0
    parts: int = 1

    @property
    def lease(self) -> str:
        """The name of its Lease."""
        return share_lease(self.source, self.part)

    @property
    def label(self) -> str:
        """Such as `1/3`; empty for an undivided source."""
        return f"{self.part + 1}/{self.parts}" if self.parts > 1 else ""

    def list_labels(self, namespaces: Sequence[str]) -> list[str]:
        """The labels of its list scopes: one, or one for each of the source's namespaces that belong to this part."""
        wanted = [one for one in dict.fromkeys(namespaces) if self.includes(one)] if namespaces else [""]
        return [":".join(word for word in (self.label, one) if word) for one in wanted]

    def includes(self, namespace: str) -> bool:
        """Objects without a namespace belong to the first part."""
        return part_of(namespace, self.parts) == self.part

    def __str__(self) -> str:
        return f"{self.source} {self.label}".strip()


def shares_of(name: str, source: SourceSettings) -> Iterator[Share]:
    return (Share(name, part, source.shares) for part in range(source.shares))


log = structlog.get_logger(__name__)

PRESENCE_KEY: Final = "watchers"
PRESENT_MS: Final = 8_000
"""Milliseconds for which an announcement counts: shorter than any Lease, so that a dead replica is no longer counted
when others take its shares."""
_CHECK_EVERY: Final = 2.0
_BETWEEN_HANDOVERS: Final = 3.0
_AFTER_DECLINED: Final = 600.0


class ReplicaPresence:
    """Replicas that can watch, as announced in Redis. Only a hint: at worst a share is handed over in vain once."""

    def __init__(self, installation: Installation, holder: str) -> None:
        self._installation, self._holder = installation, holder
        self._key = installation.keys.of(0, PRESENCE_KEY)

    async def announce(self) -> None:
        """To be called often. Old announcements are removed."""
        now = await server_ms(self._installation.shards[0])
        await self._installation.caller.command("ZADD", self._key, now, self._holder)
        await self._installation.caller.command("ZREMRANGEBYSCORE", self._key, 0, now - 10 * PRESENT_MS)

    async def leave(self) -> None:
        await self._installation.caller.command("ZREM", self._key, self._holder)

    async def count(self) -> int:
        now = await server_ms(self._installation.shards[0])
        return int(await self._installation.caller.command("ZCOUNT", self._key, now - PRESENT_MS, "+inf"))


class ShareBalance:
    """Number of shares that this replica holds, compared with its part of all shares."""

    def __init__(self, presence: ReplicaPresence, shares: int) -> None:
        self.held = 0
        self._presence, self._shares = presence, shares
        self._not_before = 0.0

    async def wait_for_excess(self) -> None:
        """Returns when a share should be handed over to another replica; of several callers, one at a time."""
        while True:
            await asyncio.sleep(_CHECK_EVERY * random.uniform(0.8, 1.2))
            if self.held <= 1 or time.monotonic() < self._not_before:
                continue
            # Every held share waits here; only the first one is handed over.
            self._not_before = time.monotonic() + _BETWEEN_HANDOVERS
            if self.held > math.ceil(self._shares / max(1, await self._presence.count())):
                log.info("handing a share over to another replica", held=self.held, shares=self._shares)
                return

    def handover_declined(self) -> None:
        """The share was still free: the other replicas can't take it, so no handover is tried for a while."""
        log.info("no other replica took the share")
        self._not_before = time.monotonic() + _AFTER_DECLINED
