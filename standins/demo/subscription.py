"""The demo's subscription at the stand-in for Azure: an interface that a failed launch left, and what looks like it.
What is left of it, and who was asked for what, is read from the stand-in itself."""

from typing import Any, Final

from service.contract.azure import AKS_MACHINE_TAG, CLUSTER_TAG, NODEPOOL_TAG
from standins.azure import GROUP, REGION, SUBSCRIPTION, Behaviour, Entry, LocalAzure, Nic, There, id_of
from standins.demo.karpenter import INTERFACE, POOL

CLUSTER: Final = "shop"
RESERVED: Final = 180.0
RATE: Final = 15.0
"""Its seconds in one of ours: the answers speak of 12 seconds, and all else is shortened alike."""
BEHAVIOUR: Final = Behaviour(refusal_renews=True)
"""The strictest world: who comes early waits for all of it again."""
PLACE: Final[dict[str, Any]] = {
    "subscription": SUBSCRIPTION,
    "resource_group": GROUP,
    "region": REGION,
    "cluster": CLUSTER,
}
"""As settings name it."""
_TAGS: Final = {CLUSTER_TAG: CLUSTER, NODEPOOL_TAG: POOL}
_CHANGES: Final = ("put", "update", "delete")


class Subscription:
    """`there`: the interface still is. `entries` are the stand-in's journal."""

    ours: Final = id_of(SUBSCRIPTION, GROUP, "nic", INTERFACE).lower()

    def __init__(self, azure: LocalAzure) -> None:
        self._azure = azure
        self._strangers: frozenset[str] = frozenset()
        self._standing: frozenset[str] = frozenset()
        self.entries: list[Entry] = []

    async def build(self) -> None:
        """Waits for the stand-in."""
        await self._azure.wait_until_ready()
        await self._azure.make(
            Nic(name=INTERFACE, tags=_TAGS),
            # As much like it as can be: of the same name elsewhere, another cluster's, of AKS, and of nobody.
            Nic(name=INTERFACE, tags=_TAGS, group="mc_elsewhere"),
            Nic(name=f"aks-{POOL}-p8d2s", tags={**_TAGS, CLUSTER_TAG: f"{CLUSTER}-2"}),
            Nic(name=f"aks-{POOL}-m3v7c", tags={**_TAGS, AKS_MACHINE_TAG: f"{POOL}-m3v7c"}),
            Nic(name=f"{INTERFACE}-2"),
        )
        await self.look()
        self._strangers = self._standing - {self.ours}

    async def reserve(self) -> None:
        """From now on: a launch that failed long ago has reserved nothing any more."""
        await self._azure.reserve(INTERFACE, f"aks-{POOL}-b7w2m", RESERVED)

    async def look(self) -> None:
        """Raises LocalAzureFailed where the stand-in does not answer."""
        self._standing = frozenset(map(_id, await self._azure.there()))
        self.entries += await self._azure.journal(len(self.entries))

    @property
    def there(self) -> bool:
        return self.ours in self._standing

    @property
    def strangers(self) -> tuple[frozenset[str], frozenset[str]]:
        """Who was there, and who of them is there."""
        return self._strangers, self._strangers & self._standing

    @property
    def asked(self) -> list[Entry]:
        return [one for one in self.entries if one.what == "request"]

    @property
    def touched(self) -> set[str]:
        """What is not the claim's and was named in a call that is to change something."""
        changing = (one for one in self.asked if one.operation.partition(".")[2] in _CHANGES)
        return {one.id.lower() for one in changing} - {self.ours}


def _id(one: There) -> str:
    return id_of(one.subscription, one.group, one.kind, one.name).lower()
