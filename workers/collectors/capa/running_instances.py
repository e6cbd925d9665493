"""Instances that carry a cluster's tag and are not terminated, for many clusters in one call. A read for one
cluster includes other clusters that had no instances at their last check, because they are checked again soon."""

import time
from collections.abc import Callable, Collection, Hashable, Iterator
from datetime import timedelta
from typing import Final, Generic, NamedTuple, TypeVar

from service.sources.capa import OWNED
from workers.providers.aws.client.reads_by_id import ReadsById
from workers.providers.aws.model import AwsClient

FORGET_AFTER: Final = timedelta(minutes=10)
"""Tags not requested for this long are dropped: their cluster is gone, or waits for something else."""

NOT_TERMINATED: Final = ["pending", "running", "shutting-down", "stopping", "stopped"]

K = TypeVar("K", bound=Hashable)


class RunningInstance(NamedTuple):
    """`vpc` is empty if AWS no longer reports it."""

    id: str
    vpc: str

    def is_in_other_vpc(self, vpc: str) -> bool:
        return bool(vpc and self.vpc) and self.vpc != vpc


class _TagAnswer(NamedTuple):
    """When it was last requested, and when it was read."""

    wanted: float
    began: float
    found: tuple[RunningInstance, ...]


class RunningInstances(Generic[K]):
    """`most` is the number of values per filter. Callers that share a key must have the same permissions."""

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._reads = ReadsById[K, tuple[RunningInstance, ...]](_read, max_ids=most)
        self._most, self._clock = most, clock
        self._known: dict[K, dict[str, _TagAnswer]] = {}

    async def with_tags(
        self, key: K, client: AwsClient, tags: Collection[str], within: timedelta = timedelta(0)
    ) -> set[RunningInstance]:
        """Instances with any of the tags. Absence may come from a result no older than `within`; running instances may
        end at any moment and are always read again."""
        now, known = self._clock(), self._known.get(key, {})
        none = [tag for tag in tags if tag in known and not known[tag].found]
        if len(none) == len(tags) and all(now - known[tag].began < within.total_seconds() for tag in tags):
            known |= {tag: known[tag]._replace(wanted=now) for tag in tags}
            return set()
        # On a first check, many other clusters make theirs at the same time.
        beside = dict(self._beside(known, tags, now)) if within else {}
        found = await self._reads.read(key, client, [*tags, *beside])
        wanted = {**dict.fromkeys(tags, now), **beside}
        self._keep(key, now, {tag: _TagAnswer(at, now, found.get(tag, ())) for tag, at in wanted.items()})
        return {one for tag in tags for one in found.get(tag, ())}

    async def aclose(self) -> None:
        await self._reads.aclose()

    def _beside(self, known: dict[str, _TagAnswer], tags: Collection[str], now: float) -> Iterator[tuple[str, float]]:
        """Other tags that fit into the call, the oldest first, and when they were requested. Tags with running
        instances would make the response long, and their clusters check again by themselves."""
        room = self._most - len(tags)
        for tag, answer in known.items():
            if room > 0 and tag not in tags and not answer.found and now - answer.wanted < FORGET_AFTER.total_seconds():
                room -= 1
                yield tag, answer.wanted

    def _keep(self, key: K, now: float, answers: dict[str, _TagAnswer]) -> None:
        known = self._known.setdefault(key, {})
        for tag, answer in answers.items():
            before = known.get(tag)
            if before is None or before.began <= answer.began:
                known.pop(tag, None)
                known[tag] = answer
        for tag in [tag for tag, answer in known.items() if now - answer.wanted >= FORGET_AFTER.total_seconds()]:
            del known[tag]


async def _read(_key: Hashable, client: AwsClient, tags: Collection[str]) -> dict[str, tuple[RunningInstance, ...]]:
    """By tag: instances that are not terminated and carry it with the value owned."""
    found: dict[str, tuple[RunningInstance, ...]] = {}
    filters = [{"Name": "tag-key", "Values": list(tags)}, {"Name": "instance-state-name", "Values": NOT_TERMINATED}]
    async for page in client.pages("ec2", "describe_instances", "Reservations", Filters=filters):
        for instance in (one for reservation in page for one in reservation.get("Instances", ())):
            for tag in instance.get("Tags", ()):
                if tag["Key"] in tags and tag["Value"] == OWNED:
                    one = RunningInstance(str(instance["InstanceId"]), str(instance.get("VpcId") or ""))
                    found[tag["Key"]] = (*found.get(tag["Key"], ()), one)
    return found
