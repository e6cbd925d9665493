"""Copies of the times at which sources were first enabled: one hash in Redis, by cluster and source.
If the ConfigMap `knell-sources` in the cluster is lost, the copy keeps objects from being taken for older ones."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from service.engine.batch_reads import text, texts
from service.engine.installation import Installation

KEY: Final = "enabled"


def format_time(at: datetime) -> str:
    """In whole seconds, like the creation times of objects: with fractions, objects created in the same second would
    seem older."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def field_of(cluster_uid: str, source: str) -> str:
    return f"{cluster_uid}/{source}"


class EnabledTimes:
    def __init__(self, installation: Installation) -> None:
        self._caller, self.key = installation.caller, installation.keys.of(0, KEY)

    async def all_times(self) -> dict[str, str]:
        """Times as stored, by `field_of`."""
        return texts(await self._caller.command("HGETALL", self.key))

    async def get(self, cluster_uid: str, source: str) -> str | None:
        found = await self._caller.command("HGET", self.key, field_of(cluster_uid, source))
        return None if found is None else text(found)

    async def add(self, cluster_uid: str, source: str, at: datetime) -> None:
        """An existing time is never changed: where it differs from the cluster, an operator decides."""
        await self._caller.command("HSETNX", self.key, field_of(cluster_uid, source), format_time(at))

    async def remove_cluster(self, cluster_uid: str) -> None:
        await self._remove(field for field in await self.all_times() if field.startswith(field_of(cluster_uid, "")))

    async def remove_source(self, source: str) -> None:
        """Removes the source's times in all clusters."""
        await self._remove(field for field in await self.all_times() if field.partition("/")[2] == source)

    async def _remove(self, fields: Iterable[str]) -> None:
        doomed = list(fields)
        if doomed:
            await self._caller.command("HDEL", self.key, *doomed)
