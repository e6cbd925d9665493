"""The witness of a cluster: a counter on our Leases that tells a cluster restored from a backup from one that went on.

It grows with every renewal, in the cluster first and in Redis afterwards. A Lease that is behind Redis, missing or
another one means that what is missing in the cluster proves nothing, until a person has accepted it.
"""

from typing import Final

import structlog
from redis.exceptions import RedisError

from service.contract.names import WITNESS
from service.engine.installation import Installation
from service.engine.witnesses import Noted, Witnesses, until_accepted
from service.kubernetes import LEASES, Cluster, Live, Unreadable

log = structlog.get_logger(__name__)

_DIGITS: Final = 15
"""More than any counter reaches, and few enough for the numbers of Lua."""
_LOOKS: Final = 3


def value_of(live: Live) -> int:
    """The counter on a Lease, 0 where it has none or one that we did not write."""
    said = live.annotations.get(WITNESS, "")
    return int(said) if said.isascii() and said.isdecimal() and len(said) <= _DIGITS else 0


class Witness:
    """`leases` of the cluster with this uid, all in one namespace; only those that Redis has a value of are read."""

    def __init__(
        self, installation: Installation, cluster: Cluster, uid: str, namespace: str, leases: tuple[str, ...]
    ) -> None:
        self._witnesses, self._cluster, self._uid = Witnesses(installation), cluster, uid
        self._namespace, self._leases = namespace, leases
        self._names = [f"{namespace}/{lease}" for lease in leases]

    async def doubt(self) -> str:
        """Why nothing that was found missing before this call counts as deleted, empty where the Leases agree.
        Raises ClusterError."""
        why = ""
        for _ in range(_LOOKS):
            # Redis first: it follows the cluster, so that a Lease which is read later is not behind it by itself.
            look = await self._witnesses.look(self._uid, self._names)
            if look.restored:
                return until_accepted(self._cluster.name, look.restored)
            why = await self._disagreement(look.noted)
            if not why or await self._suspected(look.raw, why):
                break
        return until_accepted(self._cluster.name, why) if why else ""

    async def restored(self) -> str:
        """What is known already, without a look at the cluster."""
        return (await self._witnesses.look(self._uid)).restored

    async def seen(self) -> str:
        """The cluster's record. It is read before the look at the cluster that `suspect` is told of."""
        return (await self._witnesses.look(self._uid)).raw

    async def suspect(self, seen: str, why: str) -> str:
        """Something else than a Lease shows that the cluster was restored. Answers why nothing counts."""
        await self._suspected(seen, why)
        return until_accepted(self._cluster.name, why)

    async def _suspected(self, seen: str, why: str) -> bool:
        kept = await self._witnesses.suspect(self._uid, seen, why)
        if kept:
            reason = until_accepted(self._cluster.name, why)
            log.error("cluster seems to be restored from a backup", cluster=self._cluster.name, why=reason)
        return kept

    async def _disagreement(self, noted: dict[str, Noted | None]) -> str:
        for name, lease in zip(self._names, self._leases, strict=True):
            if name not in noted:
                continue
            live = await self._cluster.get(LEASES, self._namespace, lease, metadata_only=True)
            if why := disagreement(name, noted[name], live):
                # Asked last: the Lease of another cluster says nothing about this one.
                if (found := await self._cluster.identity()) != self._uid:
                    raise Unreadable(f"cluster {self._cluster.name} had uid {self._uid}, and {found} answers now")
                return why
        return ""


def disagreement(name: str, noted: Noted | None, live: Live | None) -> str:
    """What a Lease and Redis do not agree on, empty where they do."""
    if noted is None:
        return f"what Redis keeps of Lease {name} can't be read"
    if live is None:
        return f"Lease {name} is missing: it was deleted, or the cluster was restored from a backup older than that"
    if live.uid != noted.uid:
        return (
            f"Lease {name} is another one (uid {live.uid}, before {noted.uid}): it was deleted and made anew, or the "
            f"cluster was restored from a backup older than that"
        )
    if value_of(live) < noted.value:
        return (
            f"the cluster was restored from a backup: the counter {WITNESS} of Lease {name} is at "
            f"{live.annotations.get(WITNESS, 'nothing')}, and was at {noted.value}"
        )
    return ""


class LeaseCounter:
    """The counter of one Lease, for who holds it: raised with each renewal, and never over a value that is behind."""

    def __init__(self, installation: Installation, cluster: Cluster, uid: str, namespace: str, lease: str) -> None:
        self._witnesses = Witnesses(installation)
        self._witness = Witness(installation, cluster, uid, namespace, (lease,))
        self._uid, self._name = uid, f"{namespace}/{lease}"
        self._doubtful = False

    async def following(self, found: Live | None) -> dict[str, str]:
        """The annotations that go with a write of the Lease: none where the value must stay as it is."""
        try:
            look = await self._witnesses.look(self._uid, [self._name])
        except RedisError as error:
            log.warning("witness not compared, and left as it is", lease=self._name, error=str(error))
            return {}
        known = look.noted.get(self._name)
        self._doubtful = self._name in look.noted and bool(disagreement(self._name, known, found))
        if self._doubtful:
            return {}
        return {WITNESS: str(1 + (value_of(found) if found is not None else 0))}

    async def written(self, live: Live) -> None:
        """After the API server has confirmed it. What was read before the write may have been old, so that a doubt is
        looked into with fresh reads."""
        try:
            if self._doubtful:
                await self._witness.doubt()
            elif value := value_of(live):
                await self._witnesses.note(self._uid, self._name, live.uid, value)
        except RedisError as error:
            log.warning("witness not written to Redis", lease=self._name, error=str(error))
