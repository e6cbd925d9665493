"""Reader of deletion records in Redis, many at once.
Consent, release and reporting learn from it which object a deletion is about."""

from collections.abc import Iterable

from service.coalesced_reads import CoalescedReads
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
        self._reads = CoalescedReads[int, str, dict[str, ObjectRef]](self._read)

    async def find_one(self, deletion: str) -> ObjectRef | None:
        """Deletions of one shard that are requested at the same time are read together."""
        found = await self._reads.read(self._installation.keys.shard_of(deletion), [deletion])
        return found.get(deletion)

    async def find(self, deletions: Iterable[str]) -> dict[str, ObjectRef]:
        """Deletions whose records exist and are planned."""
        shards: dict[int, list[str]] = {}
        for deletion in deletions:
            shards.setdefault(self._installation.keys.shard_of(deletion), []).append(deletion)
        found: dict[str, ObjectRef] = {}
        for shard, wanted in shards.items():
            found |= await self._read(shard, wanted)
        return found

    async def aclose(self) -> None:
        await self._reads.aclose()

    async def _read(self, shard: int, deletions: list[str]) -> dict[str, ObjectRef]:
        wanted = list(dict.fromkeys(deletions))
        rows = await self._installation.shards[shard].read_deletions(wanted, FIELDS)
        refs = (_ref_of(deletion, row) for deletion, row in zip(wanted, rows, strict=True))
        return {ref.deletion: ref for ref in refs if ref is not None}


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
