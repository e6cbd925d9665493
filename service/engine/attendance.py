"""Arriving at the shards: is the count right, is the group there, may writes have been lost since last time?

A lost write is never papered over: it is logged, and the control side is asked to list everything again.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

import structlog

from service.engine.calls import Caller
from service.engine.engine import Shard

log = structlog.get_logger(__name__)


class WrongShards(Exception):
    """The stored shard count is another one than the settings say."""


async def before_stop(stop: asyncio.Event, arrival: Coroutine[Any, Any, Any]) -> bool:
    """False where a stop came first: a server that stays away must not keep a process from going."""
    arriving, stopping = asyncio.ensure_future(arrival), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((arriving, stopping), return_when=asyncio.FIRST_COMPLETED)
        if arriving.done():
            arriving.result()
        return not stop.is_set()
    finally:
        for task in (arriving, stopping):
            task.cancel()
        await asyncio.gather(arriving, stopping, return_exceptions=True)


class Attendance:
    """What one process knows of each shard's epoch."""

    def __init__(self, shards: list[Shard]) -> None:
        self._shards = shards
        self._epochs: dict[int, str] = {}

    async def attend(self) -> bool:
        """Look at every shard; True where writes may have been lost."""
        lost = False
        for shard in self._shards:
            lost |= await self._attend(shard)
        return lost

    async def _attend(self, shard: Shard) -> bool:
        identity = await replication_id(shard.caller, shard)
        known = self._epochs.get(shard.number, "")
        answer = await shard.attend(identity, known)
        if answer.shards < 0:
            raise WrongShards(
                f"a move to {-answer.shards} shards was begun and not finished; run "
                f"`knell reshard --to {-answer.shards}` again with all workers stopped"
            )
        if answer.shards != shard.keys.shards:
            raise WrongShards(
                f"the data is kept in {answer.shards} shards, but redis.shards says {shard.keys.shards}; set "
                f"redis.shards to {answer.shards}, or stop all workers and run `knell reshard --to {shard.keys.shards}`"
            )
        self._epochs[shard.number] = answer.epoch
        if answer.lost:
            log.warning("writes may be lost, a relist is asked for", shard=shard.number, epoch=answer.epoch)
        return bool(answer.lost)


async def replication_id(caller: Caller, shard: Shard) -> str:
    """The id of the history that the shard's server writes; another one means that a history may have ended."""
    info = await caller.command("INFO", "replication", near=shard.stem + "meta")
    return str(info.get("master_replid", ""))
