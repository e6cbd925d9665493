"""Resources at the provider before the crash scenario: objects whose resources are deleted, and others that stay.

Resources of a later stage are blocked by those of the stage before, so the provider itself notices a stage that opens
too early. Some objects claim a resource that carries another owner's tag."""

from dataclasses import dataclass

from service.contract import Event
from tests.simulated import Seed, SeededObject, SeededResource, TargetOf
from tests.simulated.handler import SOURCE

ACCOUNTS, REGIONS = 10, 5
# Chain and stage of each target of a deletion.
SHAPE = (
    ("network", 0), ("network", 0), ("network", 0), ("network", 1), ("network", 1), ("network", 1),
    ("disks", 0), ("disks", 0), ("disks", 1), ("disks", 1),
)  # fmt: skip

Key = tuple[str, str]
"""Account and id of a resource."""


@dataclass(frozen=True, slots=True)
class CrashSeed:
    seed: Seed
    events: list[Event]
    targets: frozenset[Key]
    foreign: frozenset[Key]
    """Claimed by an object, tagged with another's name: never to be touched."""


def invent(deletions: int, foreign: int, bystanders: int) -> CrashSeed:
    """`foreign` of the deletions claim one resource that is not theirs."""
    resources: list[SeededResource] = []
    objects: list[SeededObject] = []
    strangers: set[Key] = set()
    for number in range(deletions):
        owner, own = f"owner-{number}", _resources(number)
        claims = [_claim(number, place, one) for place, one in enumerate(own)]
        if number < foreign:
            stranger = SeededResource(account=f"a{number % ACCOUNTS}", id=f"stranger-{number}", owner="somebody-else")
            strangers.add((stranger.account, stranger.id))
            resources.append(stranger)
            claims.append(TargetOf(account=stranger.account, id=stranger.id, region="r0", chain="other"))
        resources += own
        objects.append(SeededObject(uid=f"u{number}", owner=owner, targets=tuple(claims)))
    targets = {(one.account, one.id) for one in resources} - strangers
    resources += [_bystander(number, deletions) for number in range(bystanders)]
    events = [
        Event(cluster=f"c{n % 3}", resource="things", uid=f"u{n}", name=f"thing-{n}", source=SOURCE)
        for n in range(deletions)
    ]
    seed = Seed(resources=tuple(resources), objects=tuple(objects))
    return CrashSeed(seed, events, frozenset(targets), frozenset(strangers))


def _lane(number: int, place: int) -> tuple[str, str]:
    """Account and region: ten neighbouring lanes for each deletion, all fifty in turn."""
    lane = (number * len(SHAPE) + place) % (ACCOUNTS * REGIONS)
    return f"a{lane // REGIONS}", f"r{lane % REGIONS}"


def _name(number: int, place: int) -> str:
    return f"res-{number}-{place}"


def _resources(number: int) -> list[SeededResource]:
    found = []
    for place, (chain, stage) in enumerate(SHAPE):
        blockers = tuple(
            f"{_lane(number, other)[0]}/{_name(number, other)}"
            for other, (same, earlier) in enumerate(SHAPE)
            if same == chain and earlier == stage - 1
        )
        account, _ = _lane(number, place)
        owner = f"owner-{number}"
        found.append(SeededResource(account=account, id=_name(number, place), owner=owner, blocked_by=blockers))
    return found


def _claim(number: int, place: int, one: SeededResource) -> TargetOf:
    chain, stage = SHAPE[place]
    return TargetOf(account=one.account, id=one.id, region=_lane(number, place)[1], chain=chain, stage=stage)


def _bystander(number: int, deletions: int) -> SeededResource:
    """Every other one even carries the tag of an object that goes, but is in no plan."""
    owner = f"owner-{number % deletions}" if number % 2 else "nobody"
    return SeededResource(account=f"a{number % ACCOUNTS}", id=f"bystander-{number}", owner=owner)
