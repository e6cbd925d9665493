"""Reader of deletion records in Redis, many at once.
Consent, release and reporting learn from it which object a deletion is about."""

import asyncio
from collections.abc import Iterable

from service.engine.installation import Installation
from service.engine.outcomes import retained_reason
from workers.handlers.collector import NAMESAKE_REMARK, ObjectRef

FIELDS = (
    "source", "cluster", "resource", "uid", "namespace", "name", "at", "withdrawn", "policy", "reason", "data",
    "abandoned",
)  # fmt: skip


class DeletionRecords:
    def __init__(self, installation: Installation) -> None:
        self._installation = installation
        # By shard, the next read of single deletions, and their ids.
        self._next: dict[int, tuple[asyncio.Task[dict[str, ObjectRef]], set[str]]] = {}

    async def find_one(self, deletion: str) -> ObjectRef | None:
        """Deletions of one shard that are requested at the same time are read together."""
        shard = self._installation.keys.shard_of(deletion)
        if shard not in self._next:
            wanted = set[str]()
            self._next[shard] = asyncio.ensure_future(self._together(shard, wanted)), wanted
        task, wanted = self._next[shard]
        wanted.add(deletion)
        return (await asyncio.shield(task)).get(deletion)

    async def _together(self, shard: int, wanted: set[str]) -> dict[str, ObjectRef]:
        await asyncio.sleep(0)
        # Later callers must not use the result of a read that has already begun.
        del self._next[shard]
        return await self.find(wanted)

    async def find(self, deletions: Iterable[str]) -> dict[str, ObjectRef]:
        """Deletions whose records exist and are planned."""
        shards: dict[int, list[str]] = {}
        for deletion in deletions:
            shards.setdefault(self._installation.keys.shard_of(deletion), []).append(deletion)
        found: dict[str, ObjectRef] = {}
        for number, wanted in shards.items():
            rows = await self._installation.shards[number].read_deletions(wanted, FIELDS)
            for deletion, row in zip(wanted, rows, strict=True):
                if (one := _ref_of(deletion, row)) is not None:
                    found[deletion] = one
        return found


def _ref_of(deletion: str, row: list[str]) -> ObjectRef | None:
    source, cluster, resource, uid, namespace, name, at, withdrawn, policy, reason, data, abandoned = row
    # The id contains the object too: a record that differs from it was not written by us.
    if not source or not deletion.startswith(f"{cluster}/{resource}/{uid}/"):
        return None
    return ObjectRef(
        deletion=deletion, source=source, cluster=cluster, resource=resource, uid=uid, namespace=namespace,
        name=name, at=int(at) if at.isdecimal() else 0, withdrawn=withdrawn,
        had_namesake=policy.endswith(NAMESAKE_REMARK), orphan=reason == "orphan", data=data,
        kept=retained_reason("", policy, withdrawn, abandoned),
    )  # fmt: skip
