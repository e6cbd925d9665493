"""Reads of resources by id, coalesced: ids requested while a read is in flight are read together by the next one."""

from collections.abc import Awaitable, Callable, Collection, Hashable
from datetime import timedelta
from typing import Generic, NamedTuple, TypeVar

from service.coalesced_reads import CoalescedReads
from workers.providers.aws.model import AwsClient

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _WantedIds(NamedTuple):
    client: AwsClient
    ids: Collection[str]


class ReadsById(Generic[K, V]):
    """`read` returns the ids that exist, at most `max_ids` per call, with the first caller's client: callers that share
    a key must have the same permissions. The first caller waits `gather_time` for others."""

    def __init__(
        self,
        read: Callable[[K, AwsClient, Collection[str]], Awaitable[dict[str, V]]],
        *,
        max_ids: int = 10_000,
        gather_time: timedelta = timedelta(0),
    ) -> None:
        self._read, self._max_ids = read, max_ids
        self._reads = CoalescedReads[K, _WantedIds, dict[str, V]](self._read_all, gather_time=gather_time)

    async def read(self, key: K, client: AwsClient, ids: Collection[str]) -> dict[str, V]:
        if not ids:
            return {}
        found = await self._reads.read(key, [_WantedIds(client, ids)])
        return {one: found[one] for one in ids if one in found}

    async def aclose(self) -> None:
        await self._reads.aclose()

    async def _read_all(self, key: K, wanted: list[_WantedIds]) -> dict[str, V]:
        ids = sorted({one for each in wanted for one in each.ids})
        found: dict[str, V] = {}
        for begin in range(0, len(ids), self._max_ids):
            found |= await self._read(key, wanted[0].client, ids[begin : begin + self._max_ids])
        return found
