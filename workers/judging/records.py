"""What the engine's records say of deletions' objects, read for many at once.
It is how the gate and the release learn which object to look at."""

import asyncio
from collections.abc import Iterable

from service.engine.endings import kept_of
from service.engine.installation import Installation
from workers.handlers.objects import BESIDE, About

FIELDS = (
    "source", "cluster", "resource", "uid", "namespace", "name", "at", "withdrawn", "policy", "reason", "data",
    "abandoned",
)  # fmt: skip


class Records:
    def __init__(self, installation: Installation) -> None:
        self._installation = installation
        # By shard, the next read for single deletions, and what it asks for.
        self._next: dict[int, tuple[asyncio.Task[dict[str, About]], set[str]]] = {}

    async def about_one(self, deletion: str) -> About | None:
        """Those of one shard that are asked for at the same moment are read together."""
        shard = self._installation.keys.shard_of(deletion)
        if shard not in self._next:
            wanted = set[str]()
            self._next[shard] = asyncio.ensure_future(self._together(shard, wanted)), wanted
        task, wanted = self._next[shard]
        wanted.add(deletion)
        return (await asyncio.shield(task)).get(deletion)

    async def _together(self, shard: int, wanted: set[str]) -> dict[str, About]:
        await asyncio.sleep(0)
        # Whoever asks from now on may not rely on an answer that is already on its way.
        del self._next[shard]
        return await self.about(wanted)

    async def about(self, deletions: Iterable[str]) -> dict[str, About]:
        """Those whose records are there and planned."""
        shards: dict[int, list[str]] = {}
        for deletion in deletions:
            shards.setdefault(self._installation.keys.shard_of(deletion), []).append(deletion)
        found: dict[str, About] = {}
        for number, wanted in shards.items():
            rows = await self._installation.shards[number].recall(wanted, FIELDS)
            for deletion, row in zip(wanted, rows, strict=True):
                if (one := _about(deletion, row)) is not None:
                    found[deletion] = one
        return found


def _about(deletion: str, row: list[str]) -> About | None:
    source, cluster, resource, uid, namespace, name, at, withdrawn, policy, reason, data, abandoned = row
    # The id names the object too: a record that says otherwise was not written by us.
    if not source or not deletion.startswith(f"{cluster}/{resource}/{uid}/"):
        return None
    return About(
        deletion=deletion, source=source, cluster=cluster, resource=resource, uid=uid, namespace=namespace,
        name=name, at=int(at) if at.isdecimal() else 0, withdrawn=withdrawn, beside=policy.endswith(BESIDE),
        orphan=reason == "orphan", data=data, kept=kept_of("", policy, withdrawn, abandoned),
    )  # fmt: skip
