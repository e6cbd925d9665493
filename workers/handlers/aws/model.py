"""Types shared by the AWS modules: cluster, resource, client, attempt, and the declaration of a kind. A CapaCluster is
stored in every target's data, so that an attempt needs no plan; it holds names, never a secret."""

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
from workers.handlers.evidence_age import clear_until, fresh_until, is_aging
from workers.handlers.protocol import Batch

PROVIDER: Final = "aws"


class CallScope(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Identity and region that calls are made with. `source` leads to the management cluster that holds the identity,
    and the object's namespace decides whether it may be used. An empty identity means the process's own credentials."""

    source: str
    namespace: str
    region: str
    # "AWSClusterRoleIdentity/name", "AWSClusterStaticIdentity/name", "AWSClusterControllerIdentity/default".
    identity: str = ""


OwnerTag = Literal["ccm", "lbc"]


class CapaCluster(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The Cluster API cluster that owns the resources. `name` is the one in its tags; with `vpc`, resources in another
    VPC are not its own. `by` says which tag identifies the resource: the cloud provider's (ccm) or the Load Balancer
    Controller's (lbc)."""

    scope: CallScope = msgspec.field(name="whose")
    account: str
    name: str
    vpc: str = ""
    by: OwnerTag = "ccm"
    # EBS volumes: complete a snapshot before the volume is deleted.
    snapshot: bool = False
    # Security groups that the object's spec names: the user's own, whatever their tags say.
    spared: tuple[str, ...] = ()
    # Security groups with the other of the two tags are deleted as well, so their rules are not foreign.
    both: bool = False
    # Load balancers with the cloud provider's tag are deleted as well, so their listeners may be, too.
    balancers: bool = False
    # The object's creation time in milliseconds, and whether its annotation adopts older resources.
    made: int = 0
    adopted: bool = False

    @property
    def place(self) -> str:
        """PROVIDER/ACCOUNT/REGION, the prefix of every lane."""
        return f"{PROVIDER}/{self.account}/{self.scope.region}"


class AwsResource(msgspec.Struct, frozen=True, kw_only=True):
    """A resource as a describe call just returned it. `id` is an ARN for elbv2, a name for classic load balancers and
    an EC2 id for the rest; `state` is AWS's own word, if any; `facts` holds what else the kind needs."""

    kind: str
    id: str
    tags: Mapping[str, str]
    vpc: str = ""
    state: str = ""
    # Security groups of a load balancer: they can't be deleted before it.
    groups: tuple[str, ...] = ()
    # Creation time, if AWS reports it.
    made: datetime | None = None
    facts: Any = None


class AwsClient(Protocol):
    """Client for one account and region with one identity. Raises AwsError and NoAccess."""

    @property
    def scope(self) -> CallScope: ...

    @property
    def account(self) -> str: ...

    async def call(self, service: str, operation: str, /, **arguments: Any) -> dict[str, Any]:
        """One request without retry or waiting. `service` as botocore names it (ec2, elb, elbv2,
        resourcegroupstaggingapi, eks, sts), `operation` in snake case."""

    def pages(self, service: str, operation: str, key: str, /, **arguments: Any) -> AsyncIterator[list[dict[str, Any]]]:
        """Each page's list under `key`; a page may be empty while more follow."""


class AwsBudgets(Protocol):
    """The shared budgets, for calls outside a lane: lists for plans and checks."""

    async def draw(self, place: str, draws: Sequence[Draw]) -> timedelta:
        """Zero if the tokens were taken; else nothing was taken, and this is when to retry."""

    async def refused(self, place: str, limit: Limit, wait: timedelta | None, others: Sequence[Limit] = ()) -> None:
        """AWS throttled a call that drew on this limit and on the others."""


class AwsClients(Protocol):
    """Source of clients for handlers and the collector. SDK clients behind it are shared, never made per job."""

    async def client(
        self, scope: CallScope, *, account: str = "", paced: bool = False, patient: bool = False
    ) -> AwsClient:
        """With `account`, the credentials must belong to it. `paced` clients draw on the shared budgets, for callers
        without a lane, and wait a few seconds; `patient` ones wait for minutes. Raises NoAccess."""


ReadResources = Callable[[AwsClient, Sequence[str]], Awaitable[dict[str, AwsResource]]]
"""The ids that exist, in as few calls as possible; an id missing from the result is proven absent."""

ListResources = Callable[[AwsClient, Sequence[str]], AsyncIterator[AwsResource]]
"""Everything that carries one of these tag keys, with all its tags, by describe calls alone. A kind that
`lists_whole_region` has no filter: one list serves every cluster of the account and region. Ownership is checked
afterwards."""

DeleteResource = Callable[[AwsClient, AwsResource], Awaitable[None]]


def _as_planned(owner: CapaCluster) -> CapaCluster:
    return owner


class EarlyVerdict(Exception):
    """Ends an attempt with this verdict."""

    def __init__(self, verdict: Verdict | Exception) -> None:
        super().__init__(str(verdict))
        self.verdict = verdict


@dataclass(frozen=True, slots=True)
class AwsAttempt:
    """One attempt at one job. `resource` was just read and belongs to the owner; `looked_up` is what the kind read for
    all jobs of the batch, `resume` what the previous attempt stored."""

    job: Job
    owner: CapaCluster
    resource: AwsResource
    client: AwsClient
    batch: Batch
    settings: AwsSettings
    resume: str = ""
    looked_up: Any = None
    # Updates the owner by the latest read of the object, which the consent check has made.
    latest: Callable[[CapaCluster], CapaCluster] = _as_planned
    # When its reads began, by the monotonic clock, and how to repeat them for this job alone.
    read: float = -math.inf
    reread: "Callable[[], Awaitable[AwsAttempt | Verdict | Exception]] | None" = None

    async def clear(self) -> None:
        """Consent, to be awaited right before a call that changes anything. Raises NotCleared and Outdated."""
        await clear_until(self.batch, self.job, fresh_until(self.read))

    async def refreshed(self) -> "AwsAttempt":
        """This attempt while its reads are fresh enough to ask for consent; else a new one from fresh reads. Raises
        EarlyVerdict if those leave nothing to do."""
        if self.reread is None or not is_aging(self.read):
            return self
        found = await self.reread()
        if not isinstance(found, AwsAttempt):
            raise EarlyVerdict(found)
        return replace(found, batch=self.batch)

    async def live_owner(self) -> CapaCluster:
        """Asks for consent and returns the owner as the object describes it now."""
        await self.clear()
        return self.latest(self.owner)

    def move_to(
        self, operation: str, detail: str, *, after: timedelta = timedelta(0), resume: str = "", kept: str = ""
    ) -> Pending:
        """Continues in the lane of another operation, which reserves the tokens for it."""
        return Pending(after, detail, lane=f"{self.owner.place}/{operation}", resume=resume, kept=kept)


Lookup = Callable[[Sequence[AwsAttempt]], Awaitable[Any]]
"""Reads what all attempts of one identity need beside the resources, in as few calls as possible."""

StepAction = Callable[[AwsAttempt], Awaitable[Verdict]]


class KindStep(msgspec.Struct, frozen=True, kw_only=True):
    """What a kind does in an additional lane. `read_operations` are those of `lookup`; with `checks_ownership` the
    resource is read and its ownership checked first, as for a deletion. `setting` must be on for the step to run."""

    run: StepAction
    lookup: Lookup | None = None
    read_operations: tuple[str, ...] = ()
    checks_ownership: bool = True
    setting: str = ""


class AwsKind(msgspec.Struct, frozen=True, kw_only=True):
    """Declaration of one kind of resource: how it is found, checked and deleted, and what that draws on.

    `stage` orders the kinds of a `chain`; chains run side by side. `delete_operation` ends the name of the lane in
    which it is deleted (`ec2.DeleteSecurityGroup`), `check_operation` that of the lane in which its absence is proven;
    `limits` knows what they draw on.
    """

    name: str
    task: Task
    service: str
    chain: str
    stage: int
    delete_operation: str
    check_operation: str
    # (service, resource type) of its ARN, as in arn:aws:ec2:REGION:ACCOUNT:security-group/sg-1.
    arn: tuple[str, str]
    # Pattern of what follows the type; that is the id for `read`, unless the whole ARN is.
    id_pattern: str = r"[^/]+"
    id_is_arn: bool = False
    read: ReadResources
    # The operations of one batched `read`.
    read_operations: tuple[str, ...]
    # Like `read`, for resources expected to be gone; tags may be missing.
    exists: ReadResources | None = None
    list_all: ListResources
    # Its list covers the whole account and region.
    lists_whole_region: bool = False
    # It is in a VPC, which identifies its owner beside the tag.
    in_vpc: bool = True
    # Every region's tagging API reports it; else it is listed by describe calls.
    in_tagging_api: bool = True
    # By operation: capacity and refill per second where AWS has a special bucket.
    limits: Mapping[str, tuple[float, float]] = {}
    delete: DeleteResource
    # It also needs the tag of a Service: load balancers and target groups.
    needs_service_tag: bool = False
    # The Load Balancer Controller creates this kind, too.
    made_by_lbc: bool = False
    # Error codes of `delete` beside those in `errors`.
    gone_codes: frozenset[str] = frozenset()
    dependency_codes: frozenset[str] = frozenset()
    # States of a resource that is being deleted, and of one that is gone; neither is deleted again.
    deleting_states: frozenset[str] = frozenset()
    absent_states: frozenset[str] = frozenset()
    # Tells it from a later resource of the same id, where ids are names that can be reused.
    incarnation: Callable[[AwsResource], str] | None = None
    # Before a deletion: what to read, and what blocks it; None lets it proceed.
    lookup: Lookup | None = None
    lookup_operations: tuple[str, ...] = ()
    precheck: Callable[[AwsAttempt], Awaitable[Verdict | None]] | None = None
    # After AWS refused the deletion because something depends on the resource, or it is protected.
    on_dependency: Callable[[AwsAttempt, AwsError], Awaitable[Verdict]] | None = None
    on_protected: Callable[[AwsAttempt, AwsError], Awaitable[Verdict]] | None = None
    # By operation: the steps in additional lanes.
    steps: Mapping[str, KindStep] = {}

    @property
    def operations(self) -> frozenset[str]:
        """All operations that it may call."""
        steps = (operation for name, step in self.steps.items() for operation in (name, *step.read_operations))
        return frozenset(
            {self.delete_operation, self.check_operation, *self.read_operations, *self.lookup_operations, *steps}
        )
