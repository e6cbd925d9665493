"""What the parts of the AWS side hand each other: whose resources are meant, and a resource as it was read.
An owner travels in every target's data, so that an attempt needs no plan; it holds names, never a secret."""

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final, Literal, Protocol

import msgspec

from service.contract import Draw, Job, Limit, Pending, Verdict
from service.contract.aws import Task
from service.settings.aws import AwsSettings
from workers.handlers.aws.errors import AwsError
from workers.handlers.freshness import clear_until, fresh_until, is_aging
from workers.handlers.protocol import Batch

PROVIDER: Final = "aws"


class Whose(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """As whom calls are made, and where: a source names the management cluster that holds the identity, and the
    object's namespace decides whether it may be used. An empty identity is the process's own (the default chain)."""

    source: str
    namespace: str
    region: str
    # "AWSClusterRoleIdentity/name", "AWSClusterStaticIdentity/name", "AWSClusterControllerIdentity/default".
    identity: str = ""


By = Literal["ccm", "lbc"]


class Owner(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The cluster whose resources are meant. `name` is what stands in its tags; with `vpc` a resource that is in
    another VPC is not its. `by` says which tag recognises the resource: the cloud provider's, or the Load Balancer
    Controller's."""

    whose: Whose
    account: str
    name: str
    vpc: str = ""
    by: By = "ccm"
    # EBS volumes: a snapshot is complete before the volume goes.
    snapshot: bool = False
    # Security groups that the object's spec names: the user's, whatever their tags say.
    spared: tuple[str, ...] = ()
    # Security groups that carry the other of the two tags go as well, so their rules are not foreign.
    both: bool = False
    # Balancers that carry the cloud provider's tag go as well, so a listener of theirs may.
    balancers: bool = False
    # When the object was made, in milliseconds, and whether its annotation says that older resources are its own.
    made: int = 0
    adopted: bool = False

    @property
    def place(self) -> str:
        """PROVIDER/ACCOUNT/REGION, the front of every lane."""
        return f"{PROVIDER}/{self.account}/{self.whose.region}"


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A resource as a describe call showed it just now. `id` is an ARN for elbv2, a name for classic balancers, and an
    EC2 id for the rest; `state` is the provider's word where it has one; `facts` is what else its kind needs."""

    kind: str
    id: str
    tags: Mapping[str, str]
    vpc: str = ""
    state: str = ""
    # Security groups that a balancer is in: they can't go before it.
    groups: tuple[str, ...] = ()
    # When it was made, where AWS tells.
    made: datetime | None = None
    facts: Any = None


class Calls(Protocol):
    """One account and region, as one identity: every call to AWS goes through here. Raises what `errors` knows."""

    @property
    def whose(self) -> Whose: ...

    @property
    def account(self) -> str: ...

    async def call(self, service: str, operation: str, /, **arguments: Any) -> dict[str, Any]:
        """`service` as botocore names it (ec2, elb, elbv2, resourcegroupstaggingapi, eks, sts), `operation` in snake
        case; one request, no retry, no waiting."""

    def pages(self, service: str, operation: str, key: str, /, **arguments: Any) -> AsyncIterator[list[dict[str, Any]]]:
        """Each page's list under `key`; a page may be empty while more follow."""


class Quota(Protocol):
    """The shared budgets, for calls that are not made in a lane: lists for plans and checks."""

    async def draw(self, place: str, draws: Sequence[Draw]) -> timedelta:
        """Zero: the tokens are ours. Else nothing was taken, and this is when to come again."""

    async def refused(self, place: str, limit: Limit, wait: timedelta | None, others: Sequence[Limit] = ()) -> None:
        """The provider refused a call for want of this, or of one of the others that it drew on."""


class Reach(Protocol):
    """How handlers and the collector get at AWS. Clients behind it are shared, never made per job."""

    async def calls(self, whose: Whose, *, account: str = "", paced: bool = False, patient: bool = False) -> Calls:
        """With `account`, the caller's must be that one. `paced` calls draw on the shared budgets themselves: for who
        has no lane that did. `patient` ones are paced, and wait for as long as it takes; others for some
        seconds. Raises NoAccess."""


Read = Callable[[Calls, Sequence[str]], Awaitable[dict[str, Found]]]
"""Those of the ids that exist, in as few calls as can be; an id that is missing from the answer is proven absent."""

ListAll = Callable[[Calls, Sequence[str]], AsyncIterator[Found]]
"""Everything that carries one of these tag keys, with all its tags, by describe calls alone. Kinds that are `whole`
can't filter: they list all that the account has in the region, so one list serves every cluster there. Ownership is
judged afterwards."""

Delete = Callable[[Calls, Found], Awaitable[None]]


def _as_planned(owner: Owner) -> Owner:
    return owner


class Overtaken(Exception):
    """What was read before is not so any more; `found` is what to say of the job instead."""

    def __init__(self, found: Verdict | Exception) -> None:
        super().__init__(str(found))
        self.found = found


@dataclass(frozen=True, slots=True)
class Turn:
    """One job's turn: what is known when its kind is asked what to do. `found` was read just now and is the owner's;
    `seen` is what the kind looked up for all jobs of the batch at once, `resume` what the last turn left for this."""

    job: Job
    owner: Owner
    found: Found
    calls: Calls
    batch: Batch
    settings: AwsSettings
    resume: str = ""
    seen: Any = None
    # The owner as the last look at the object has it; who clears has made that look.
    latest: Callable[[Owner], Owner] = _as_planned
    # When the reads began that it rests on, by the monotonic clock, and how they are made again for this job alone.
    read: float = -math.inf
    again: "Callable[[], Awaitable[Turn | Verdict | Exception]] | None" = None

    async def clear(self) -> None:
        """To be awaited right before a call that changes anything; raises NotCleared and Outdated."""
        await clear_until(self.batch, self.job, fresh_until(self.read))

    async def renewed(self) -> "Turn":
        """The same turn while what was read is young enough to ask for consent with; else all of it is read again.
        Raises Overtaken where that leaves nothing to do."""
        if self.again is None or not is_aging(self.read):
            return self
        found = await self.again()
        if not isinstance(found, Turn):
            raise Overtaken(found)
        return replace(found, batch=self.batch)

    async def live(self) -> Owner:
        """Clears, and answers whose the resource is by what the object says now."""
        await self.clear()
        return self.latest(self.owner)

    def hop(
        self, operation: str, detail: str, *, after: timedelta = timedelta(0), resume: str = "", kept: str = ""
    ) -> Pending:
        """Go on in the lane of another operation, which reserves what that draws on."""
        return Pending(after, detail, lane=f"{self.owner.place}/{operation}", resume=resume, kept=kept)


Look = Callable[[Sequence[Turn]], Awaitable[Any]]
"""What all turns of one identity need to know beside the resources themselves, in one go."""

Act = Callable[[Turn], Awaitable[Verdict]]


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What a kind does in a lane other than its own. `reads` are the operations of `look`; with `judged` the resource
    is read and its ownership judged before, as for a deletion. `only` is the setting without which it is not done."""

    act: Act
    look: Look | None = None
    reads: tuple[str, ...] = ()
    judged: bool = True
    only: str = ""


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of resource, declared: how it is found, judged and removed, and what that draws on.

    `stage` orders kinds of the same `chain`; chains do not wait for each other, and a plan has others for what waits
    for nothing. `operation` is the last part of the lane in which it is deleted (`ec2.DeleteSecurityGroup`), `checking`
    of the lane in which its absence is proven; both are names of AWS's actions with the service in front, and `limits`
    knows what they draw on.
    """

    name: str
    task: Task
    service: str
    chain: str
    stage: int
    operation: str
    checking: str
    # (service, resource type) of its ARN, as in arn:aws:ec2:REGION:ACCOUNT:security-group/sg-1.
    arn: tuple[str, str]
    # What follows the type, as a pattern; it is the id that `read` takes, unless that is the ARN itself.
    shape: str = r"[^/]+"
    by_arn: bool = False
    read: Read
    # The operations that one batched read of `read` makes; what they draw on is known by their names.
    reads: tuple[str, ...]
    # As `read`, for what is expected to be gone; the answer may lack tags. Without it, `read` serves.
    exists: Read | None = None
    list_all: ListAll
    # Its lists are of the whole account and region.
    whole: bool = False
    # It is in a VPC, which says whose it is beside its tag.
    in_vpc: bool = True
    # Every server's tagging API knows it; else it is described by its tag.
    told: bool = True
    # By operation: capacity and refill per second where AWS has a bucket other than the usual for it.
    limits: Mapping[str, tuple[float, float]] = {}
    delete: Delete
    # Needs the service's tag beside the cluster's: balancers and target groups.
    of_service: bool = False
    # The Load Balancer Controller makes such ones too.
    of_lbc: bool = False
    # Error codes of `delete` beside those that `errors` knows for everybody.
    gone: frozenset[str] = frozenset()
    depends: frozenset[str] = frozenset()
    # States in which it is as good as gone, or on its way: then it is only waited for.
    going: frozenset[str] = frozenset()
    absent: frozenset[str] = frozenset()
    # What tells it from a later one of the same id, where ids are names that can come back.
    born: Callable[[Found], str] | None = None
    # Before a deletion: what to look up, and what stands against it; None lets it go on.
    look: Look | None = None
    looks: tuple[str, ...] = ()
    before: Callable[[Turn], Awaitable[Verdict | None]] | None = None
    # After a deletion was refused because something depends on it, or it is protected.
    blocked: Callable[[Turn, AwsError], Awaitable[Verdict]] | None = None
    protected: Callable[[Turn, AwsError], Awaitable[Verdict]] | None = None
    # By operation: what it does in lanes of its own.
    steps: Mapping[str, Step] = {}

    @property
    def operations(self) -> frozenset[str]:
        """Everything that it may ever call."""
        steps = (operation for name, step in self.steps.items() for operation in (name, *step.reads))
        return frozenset({self.operation, self.checking, *self.reads, *self.looks, *steps})
