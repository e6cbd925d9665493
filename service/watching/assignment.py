"""What one run of a source works on: the source, its cluster, its share, and who may say that it has to stop.
Also what it has counted since it began, as plain numbers for whoever shows them."""

from collections.abc import Callable
from dataclasses import dataclass, field

from service.contract.traits import Traits, traits_of
from service.engine.installation import Installation
from service.engine.lease_witness import Witness
from service.kubernetes import Cluster, Sightings
from service.settings import PolicySettings, SourceSettings, WatchSettings
from service.watching.collectors import COLLECTORS, Recognise
from service.watching.namespace_marks import NamespaceMarks


class NotHolding(Exception):
    """The Lease of this source is not ours any more: nothing is published or patched until it is again."""


@dataclass(slots=True)
class Tally:
    """`held` are objects whose deletion is not believed and `owned` those in scope, at the moment; all others count
    since the start."""

    listed: int = 0
    events: int = 0
    published: int = 0
    marked: int = 0
    unmarked: int = 0
    relists: int = 0
    resumed: int = 0
    problems: int = 0
    unreadable: int = 0
    missed: int = 0
    withdrawn: int = 0
    held: int = 0
    owned: int = 0


def _everything(_namespace: str) -> bool:
    return True


def _always() -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """`enabled_at` is the moment of first enabling in milliseconds: what is older is left alone unless told otherwise.

    `part` names the share among its source's others, such as `1/3`; empty where there is only one. `namespaces` tells
    whose marks change; without it that is noticed later. `sightings` are for a planner in the same process. `witness`
    tells a cluster that was restored from a backup; without a Lease there is none.
    """

    name: str
    settings: SourceSettings
    cluster: Cluster
    cluster_uid: str
    installation: Installation
    recognise: Recognise
    enabled_at: int = 0
    share: Callable[[str], bool] = _everything
    may_act: Callable[[], bool] = _always
    part: str = ""
    namespaces: NamespaceMarks | None = None
    sightings: Sightings | None = None
    witness: Witness | None = None
    tally: Tally = field(default_factory=Tally)
    _owned: dict[str, int] = field(default_factory=dict)
    _held: dict[str, int] = field(default_factory=dict)

    @property
    def policy(self) -> PolicySettings:
        return self.installation.settings.policy

    @property
    def watch(self) -> WatchSettings:
        return self.installation.settings.watch

    @property
    def traits(self) -> Traits:
        return traits_of(self.settings.collector)

    @property
    def metadata_only(self) -> bool:
        """Whether nothing but an object's metadata is ever looked at."""
        return self.recognise is COLLECTORS["none"]

    @property
    def observes(self) -> bool:
        return self.settings.mode == "observe"

    def count(self, strand: str, *, owned: int | None = None, held: int | None = None) -> None:
        """What one strand of the source has at the moment; the tally shows them together."""
        if owned is not None:
            self._owned[strand] = owned
            self.tally.owned = sum(self._owned.values())
        if held is not None:
            self._held[strand] = held
            self.tally.held = sum(self._held.values())

    async def doubt(self) -> str:
        """Why nothing that was found missing before this call counts as deleted; empty where nothing speaks against it.
        Raises ClusterError."""
        return await self.witness.doubt() if self.witness is not None else ""

    def act(self) -> None:
        """Asked right before everything that others see. Raises NotHolding."""
        if not self.may_act():
            raise NotHolding(f"the Lease of source {self.name} is not held")
