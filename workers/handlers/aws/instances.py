"""Instances that carry a cluster's tag and are not terminated, for many clusters in one call.
Who asks for some tags asks for those of other clusters as well of which nothing ran: these ask next."""

import time
from collections.abc import Callable, Collection, Hashable, Iterator
from datetime import timedelta
from typing import Final, Generic, NamedTuple, TypeVar

from service.contract.aws import OWNED
from workers.handlers.aws.joining import Joined
from workers.handlers.aws.model import Calls

LATELY: Final = timedelta(minutes=10)
"""Tags that nobody has asked for since are forgotten: their cluster is gone, or waits for something else."""

ALIVE: Final = ["pending", "running", "shutting-down", "stopping", "stopped"]

K = TypeVar("K", bound=Hashable)


class Instance(NamedTuple):
    """`vpc` is empty where AWS no longer says it."""

    id: str
    vpc: str

    def is_elsewhere(self, vpc: str) -> bool:
        return bool(vpc and self.vpc) and self.vpc != vpc


class _Answer(NamedTuple):
    """When somebody last wanted it, and when it was asked for."""

    wanted: float
    began: float
    found: tuple[Instance, ...]


class Instances(Generic[K]):
    """`most` is how many values a filter takes. Whoever asks under one key must be allowed the same."""

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._reads = Joined[K, tuple[Instance, ...]](_read, most=most)
        self._most, self._clock = most, clock
        self._known: dict[K, dict[str, _Answer]] = {}

    async def carrying(
        self, key: K, calls: Calls, tags: Collection[str], within: timedelta = timedelta(0)
    ) -> set[Instance]:
        """Those with any of the tags. That there are none may be known by an answer that is no older than `within`;
        what ran may be gone any moment, and is asked for again."""
        now, known = self._clock(), self._known.get(key, {})
        none = [tag for tag in tags if tag in known and not known[tag].found]
        if len(none) == len(tags) and all(now - known[tag].began < within.total_seconds() for tag in tags):
            known |= {tag: known[tag]._replace(wanted=now) for tag in tags}
            return set()
        # Who asks for the first time has many beside him who do so, too.
        beside = dict(self._beside(known, tags, now)) if within else {}
        found = await self._reads.ask(key, calls, [*tags, *beside])
        wanted = {**dict.fromkeys(tags, now), **beside}
        self._keep(key, now, {tag: _Answer(at, now, found.get(tag, ())) for tag, at in wanted.items()})
        return {one for tag in tags for one in found.get(tag, ())}

    async def aclose(self) -> None:
        await self._reads.aclose()

    def _beside(self, known: dict[str, _Answer], tags: Collection[str], now: float) -> Iterator[tuple[str, float]]:
        """As many as the call has room for, the oldest first, and when they were wanted. Those under which something
        ran would make the answer long: their cluster is waited for, and asks by itself."""
        room = self._most - len(tags)
        for tag, answer in known.items():
            if room > 0 and tag not in tags and not answer.found and now - answer.wanted < LATELY.total_seconds():
                room -= 1
                yield tag, answer.wanted

    def _keep(self, key: K, now: float, answers: dict[str, _Answer]) -> None:
        known = self._known.setdefault(key, {})
        for tag, answer in answers.items():
            before = known.get(tag)
            if before is None or before.began <= answer.began:
                known.pop(tag, None)
                known[tag] = answer
        for tag in [tag for tag, answer in known.items() if now - answer.wanted >= LATELY.total_seconds()]:
            del known[tag]


async def _read(_key: Hashable, calls: Calls, tags: Collection[str]) -> dict[str, tuple[Instance, ...]]:
    """By tag, those that are not terminated and carry it as owned."""
    found: dict[str, tuple[Instance, ...]] = {}
    filters = [{"Name": "tag-key", "Values": list(tags)}, {"Name": "instance-state-name", "Values": ALIVE}]
    async for page in calls.pages("ec2", "describe_instances", "Reservations", Filters=filters):
        for instance in (one for reservation in page for one in reservation.get("Instances", ())):
            for tag in instance.get("Tags", ()):
                if tag["Key"] in tags and tag["Value"] == OWNED:
                    one = Instance(str(instance["InstanceId"]), str(instance.get("VpcId") or ""))
                    found[tag["Key"]] = (*found.get(tag["Key"], ()), one)
    return found
