"""Epochs of shards: checks at start and after reconnecting that the shard count is right and whether writes were lost.

Lost writes are logged, and a relist of all sources is requested.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

import structlog

from service.engine.calls import RedisCaller
from service.engine.shard import Shard

log = structlog.get_logger(__name__)


class ShardCountMismatch(Exception):
    """The stored shard count differs from the settings."""


async def run_unless_stopped(stop: asyncio.Event, call: Coroutine[Any, Any, Any]) -> bool:
    """Runs the coroutine until it ends or `stop` is set, so that an unavailable server does not delay a shutdown. False
    where the stop came first."""
    running, stopping = asyncio.ensure_future(call), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((running, stopping), return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
        return not stop.is_set()
    finally:
        for task in (running, stopping):
            task.cancel()
        await asyncio.gather(running, stopping, return_exceptions=True)


class EpochTracker:
    """The epoch of each shard as this process last saw it."""

    def __init__(self, shards: list[Shard]) -> None:
        self._shards = shards
        self._epochs: dict[int, str] = {}

    async def check(self) -> bool:
        """Checks every shard; True where writes may have been lost."""
        lost = False
        for shard in self._shards:
            lost |= await self._check_shard(shard)
        return lost

    async def _check_shard(self, shard: Shard) -> bool:
        identity = await replication_id(shard.caller, shard)
        known = self._epochs.get(shard.number, "")
        answer = await shard.check_epoch(identity, known)
        if answer.shards < 0:
            raise ShardCountMismatch(
                f"a move to {-answer.shards} shards was begun and not finished; run "
                f"`knell reshard --to {-answer.shards}` again with all workers stopped"
            )
        if answer.shards != shard.keys.shards:
            raise ShardCountMismatch(
                f"the data is kept in {answer.shards} shards, but redis.shards says {shard.keys.shards}; set "
                f"redis.shards to {answer.shards}, or stop all workers and run `knell reshard --to {shard.keys.shards}`"
            )
        self._epochs[shard.number] = answer.epoch
        if answer.lost:
            log.warning("writes may be lost, a relist is requested", shard=shard.number, epoch=answer.epoch)
        return bool(answer.lost)


async def replication_id(caller: RedisCaller, shard: Shard) -> str:
    """The replication id of the shard's server. It changes with a restart or failover, which may lose writes."""
    info = await caller.command("INFO", "replication", near=shard.stem + "meta")
    return str(info.get("master_replid", ""))
