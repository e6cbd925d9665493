"""The engine of one installation: clients, shards and budgets, created from the settings.

Workers, watchers and the command line all access Redis through it.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta

import msgspec

from service.contract import Event, Limit
from service.engine.budgets import Budgets
from service.engine.calls import RedisCaller
from service.engine.clients import RedisClients
from service.engine.keys import Keys, deletion_of
from service.engine.script_loading import Scripts
from service.engine.script_replies import Published
from service.engine.shard import Shard
from service.settings import LimitOverride, Settings


def _change(override: LimitOverride) -> Callable[[Limit], Limit]:
    def change(limit: Limit) -> Limit:
        if override.learns is not None:
            limit = msgspec.structs.replace(limit, learns=override.learns)
        capacity = limit.capacity if override.capacity is None else float(override.capacity)
        if override.window is not None:
            return msgspec.structs.replace(limit, kind="window", capacity=capacity, per=override.window)
        per = limit.per
        if override.rate is not None:
            return msgspec.structs.replace(
                limit, kind="bucket", capacity=capacity, per=timedelta(seconds=capacity / override.rate)
            )
        if limit.kind == "bucket":
            per = limit.per * (capacity / limit.capacity)
        return msgspec.structs.replace(limit, capacity=capacity, per=per)

    return change


class Installation:
    def __init__(
        self,
        settings: Settings,
        *,
        name: str = "knell",
        scripts: Scripts | None = None,
        clock_offset: Callable[[], timedelta] | None = None,
        patience: timedelta | None = None,
    ) -> None:
        self.settings = settings
        self.connections = RedisClients(settings.redis, name=name)
        self.keys = Keys(settings.redis.prefix, settings.redis.shards)
        offset = settings.testing.clock_offset
        self.caller = RedisCaller(
            self.connections.client, scripts=scripts, clock_offset=clock_offset or (lambda: offset), patience=patience
        )
        self.shards = [Shard(self.caller, self.keys, number) for number in range(settings.redis.shards)]
        overrides = {pattern: _change(override) for pattern, override in settings.limits.items()}
        self.budgets = Budgets(self.caller, self.keys, overrides, settings.worker.learn_up_to)

    def shard_of(self, deletion: str) -> Shard:
        return self.shards[self.keys.shard_of(deletion)]

    def shard_of_job(self, job: str) -> Shard:
        return self.shard_of(deletion_of(job))

    async def publish(self, events: Sequence[Event]) -> list[Published]:
        """Publishes each event to the shard of its deletion; returns the answers in the order of `events`."""
        if len(self.shards) == 1:
            return await self.shards[0].publish(events)
        places: dict[int, list[int]] = {}
        for position, event in enumerate(events):
            places.setdefault(self.keys.shard_of(event.deletion), []).append(position)
        answers: dict[int, Published] = {}
        for shard, positions in places.items():
            found = await self.shards[shard].publish([events[position] for position in positions])
            answers.update(zip(positions, found, strict=True))
        return [answers[position] for position in range(len(events))]

    async def aclose(self) -> None:
        await self.connections.aclose()
