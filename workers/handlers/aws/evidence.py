"""What must be true before anything is collected: not moving, not paused, not too early, the right account and VPC.
Whatever is not so holds, and says what is waited for; a look that could not be made is no finding."""

import re
import time
from collections.abc import Callable, Collection
from datetime import timedelta
from typing import Final, NamedTuple

from service.contract.aws import (
    CLUSTER_NAME,
    CLUSTERS,
    MACHINE_POOLS,
    MACHINES,
    capi_ownership_tag,
    ownership_tag,
)
from service.kubernetes import NotServed, Served
from service.policy.capi import paused, stands_still
from workers.handlers.aws.accounts import recorded, to_record
from workers.handlers.aws.errors import AwsError
from workers.handlers.aws.instances import ALIVE, Instances
from workers.handlers.aws.joining import Joined
from workers.handlers.aws.model import Calls
from workers.handlers.aws.owners import LET_GO, Subject
from workers.handlers.places import Place

AGAIN: Final = timedelta(seconds=10)
"""When what is waited for is looked at again."""

LATER: Final = timedelta(minutes=1)
"""The same for what only a person changes."""

NAMED: Final = 3
"""Things that a sentence names; of the others it says how many there are."""

VALUES: Final = 200
"""So many values a question to EC2 takes, in all its filters together."""


_EKS_NAME: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,99}")
"""What an EKS cluster can be named; EKS refuses a question about any other name."""


class Held(Exception):
    """Nothing is done now; the message names what is waited for, `after` is when to look again. What `waits` goes on
    without a person."""

    def __init__(self, reason: str, after: timedelta | None = AGAIN, *, waits: bool = False) -> None:
        super().__init__(reason)
        self.after, self.waits = after, waits


class Standing(NamedTuple):
    """Whose answers may be shared: one identity of one management cluster, in one account and region."""

    source: str
    identity: str
    account: str
    region: str


def standing(calls: Calls) -> Standing:
    whose = calls.whose
    return Standing(whose.source, whose.identity, calls.account, whose.region)


# ---- also right before every destructive call


async def not_moving(subject: Subject, place: Place) -> None:
    """`clusterctl move` takes objects away whose cluster lives on elsewhere: it pauses first."""
    if (still := stands_still(subject.annotations)) is not None:
        raise Held(f"{still.kind}: {still.reason}", LATER)
    cluster = await place.get(CLUSTERS, subject.namespace, subject.cluster)
    if cluster is None:
        raise Held(
            f"Cluster {subject.namespace}/{subject.cluster}, which owns it, is not there, so nobody can tell whether "
            f"it was moved; {LET_GO}",
            LATER,
        )
    if subject.cluster_uid and cluster.uid != subject.cluster_uid:
        raise Held(
            f"Cluster {subject.namespace}/{subject.cluster} has uid {cluster.uid}, and the one that owns it "
            f"{subject.cluster_uid}: nobody can tell whether that was moved; {LET_GO}",
            LATER,
        )
    if (why := paused(cluster.raw)) is not None:
        raise Held(f"paused: Cluster {subject.namespace}/{subject.cluster}, which owns it, by {why}", LATER)


# ---- before a plan


async def no_machines(subject: Subject, place: Place) -> None:
    """As far as the management cluster knows; of EKS it does not say when controllers stop."""
    if subject.managed:
        return
    left = [
        *await _objects(place, MACHINES, "Machine", subject),
        *await _objects(place, MACHINE_POOLS, "MachinePool", subject),
    ]
    if left:
        raise Held(f"too early: {listed(left)} of cluster {subject.name} must be gone first", waits=True)


class Evidence:
    """What only AWS can tell. Reads for several clusters are made together."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._vpcs = Joined[Standing, str](_read_vpcs, most=VALUES)
        self._instances = Instances[Standing](VALUES - len(ALIVE), clock)
        # One at a time is all that EKS answers for; who asks for the same one meanwhile shares it.
        self._eks = Joined[tuple[Standing, str], str](_read_eks)

    async def vpc(self, subject: Subject, calls: Calls, expected: str) -> None:
        """`expected` is the account that settings name."""
        if not subject.vpc or subject.vpc in await self._vpcs.ask(standing(calls), calls, [subject.vpc]):
            return
        missing = f"VPC {subject.vpc} of {subject.called} is not in account {calls.account}, region {subject.region}"
        if not subject.vpc_deleted:
            raise Held(
                f"{missing}: the wrong account is not an empty account; correct the credentials, or, where the VPC is "
                f"gone for good, {LET_GO}",
                LATER,
            )
        if not recorded(subject, expected):
            raise Held(
                f"{missing}: Cluster API says that it has deleted it, but nothing else tells whether that account is "
                f"the right one; {to_record(subject, calls.account)}; {LET_GO}",
                LATER,
            )
        # Cluster API says itself that it removed it, and the account is known to be the right one.

    async def nothing_runs(
        self, subject: Subject, calls: Calls, *, apart: bool, within: timedelta = timedelta(0)
    ) -> None:
        """While anything of the cluster runs, what is deleted may be made again. With `apart` everything that is looked
        for is in a VPC: then what runs in another one is of another cluster with the same name. Instances that were
        listed `within` that time are not listed again."""
        if await self._eks_is_going(subject, calls) and apart:
            return
        tags = dict.fromkeys(
            (ownership_tag(subject.name), capi_ownership_tag(subject.name), capi_ownership_tag(subject.cluster))
        )
        found = await self._instances.carrying(standing(calls), calls, tags, within)
        if running := {one for one in found if not (apart and one.is_elsewhere(subject.vpc))}:
            words = listed(sorted(f"instance {one.id}{f' in {one.vpc}' if one.vpc else ''}" for one in running))
            raise Held(f"too early: {words} of cluster {subject.name} must be gone first", waits=True)

    async def aclose(self) -> None:
        for reads in (self._vpcs, self._instances, self._eks):
            await reads.aclose()

    async def _eks_is_going(self, subject: Subject, calls: Calls) -> bool:
        """False where EKS knows no such cluster. That alone proves nothing: a cluster of that name that runs on
        instances was never EKS's to know. One beside an object that is not managed is another's, whatever its state,
        and what is tagged may be its until it is gone."""
        if not _EKS_NAME.fullmatch(subject.name):
            return False
        found = await self._eks.ask((standing(calls), subject.name), calls, [subject.name])
        state = found.get(subject.name)
        if state is not None and not subject.managed:
            raise Held(
                f"EKS cluster {subject.name} is {state} in the same account and region, and has the same name in its "
                f"tags: what is tagged may be its until it is gone; {LET_GO}",
                AGAIN if state == "DELETING" else LATER,
                waits=state == "DELETING",
            )
        if state not in (None, "DELETING"):
            words = f"too early: EKS cluster {subject.name} is {state}; it must be deleting or gone first"
            raise Held(words, waits=True)
        return state is not None


async def _objects(place: Place, resource: str, kind: str, subject: Subject) -> list[str]:
    try:
        return await place.on(resource, lambda served: _named(place, served, kind, subject))
    except NotServed:
        if resource == MACHINES:
            raise
        # Cluster API without MachinePools.
        await not_installed(place, resource)
        return []


async def not_installed(place: Place, resource: str) -> None:
    """Raises Held unless its CRD says so: what is not served for a moment, as while its CRD is replaced or goes, may
    have objects all the same."""
    if (state := await place.crd_state(resource)) != "absent":
        raise Held(f"{resource} of cluster {place.name} can't be listed now, although its CRD is {state}")


async def _named(place: Place, served: Served, kind: str, subject: Subject) -> list[str]:
    found: list[str] = []
    selector = f"{CLUSTER_NAME}={subject.cluster}"
    async for page in place.cluster.pages(served, subject.namespace, selector, metadata_only=True):
        found += [f"{kind} {one.namespace}/{one.name}" for one in page.items]
        found += [f"{kind} that can't be read ({why})" for why in page.unreadable]
    return found


async def has_vpc(calls: Calls, vpc: str) -> bool:
    """Whether the account and region have it, by a read of its own."""
    return vpc in await _read_vpcs(standing(calls), calls, [vpc])


async def _read_vpcs(_key: Standing, calls: Calls, ids: Collection[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    filters = [{"Name": "vpc-id", "Values": list(ids)}]
    async for page in calls.pages("ec2", "describe_vpcs", "Vpcs", Filters=filters):
        found |= {str(one["VpcId"]): str(one.get("State", "")) for one in page}
    return found


async def _read_eks(_key: tuple[Standing, str], calls: Calls, names: Collection[str]) -> dict[str, str]:
    """States by name, of those that are there."""
    found: dict[str, str] = {}
    for name in names:
        try:
            answer = await calls.call("eks", "describe_cluster", name=name)
        except AwsError as error:
            if error.what != "gone":
                raise
        else:
            found[name] = str(answer.get("cluster", {}).get("status") or "in no known state")
    return found


def listed(names: list[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{', '.join(names[:NAMED])}{more}"
