"""Copies of the moments at which sources were first enabled: one hash in Redis, by cluster and source.
The ConfigMap `knell-sources` in the cluster may be lost: without a copy, older objects would be forgotten silently."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from service.engine.installation import Installation
from service.engine.views.reading import text, texts

KEY: Final = "enabled"


def written(at: datetime) -> str:
    """In whole seconds, as objects carry their time of creation: a finer moment would make those of its second look
    older."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def field_of(cluster_uid: str, source: str) -> str:
    return f"{cluster_uid}/{source}"


class Moments:
    def __init__(self, installation: Installation) -> None:
        self._caller, self.key = installation.caller, installation.keys.of(0, KEY)

    async def every(self) -> dict[str, str]:
        """By `field_of`, as they are written."""
        return texts(await self._caller.command("HGETALL", self.key))

    async def of(self, cluster_uid: str, source: str) -> str | None:
        found = await self._caller.command("HGET", self.key, field_of(cluster_uid, source))
        return None if found is None else text(found)

    async def keep(self, cluster_uid: str, source: str, at: datetime) -> None:
        """What is there is never changed: where it disagrees with the cluster, a person decides."""
        await self._caller.command("HSETNX", self.key, field_of(cluster_uid, source), written(at))

    async def forget_cluster(self, cluster_uid: str) -> None:
        await self._forget(field for field in await self.every() if field.startswith(field_of(cluster_uid, "")))

    async def forget_source(self, source: str) -> None:
        """In every cluster."""
        await self._forget(field for field in await self.every() if field.partition("/")[2] == source)

    async def _forget(self, fields: Iterable[str]) -> None:
        doomed = list(fields)
        if doomed:
            await self._caller.command("HDEL", self.key, *doomed)
