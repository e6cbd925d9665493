"""Types shared by the AWS modules: claim, resource and client. A claim is stored in every target's data, so that an
attempt needs no plan; it holds names, never a secret."""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

import msgspec

from service.contract import Draw, Limit

PROVIDER: Final = "aws"


class CallScope(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Identity and region that calls are made with. `source` leads to the collector and the cluster that know the
    identity, and the object's namespace decides whether it may be used. An empty identity means the process's own
    credentials."""

    source: str
    namespace: str
    region: str
    identity: str = ""


class AwsClaim(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="collector"):
    """What a target says about the owner of a resource: the collector that judges it, the identity to act as and its
    account. Every collector has a subclass with its name as `tag`, to which it adds its proof. It is data, never
    permission: what it says counts only as far as the collector confirms it."""

    scope: CallScope = msgspec.field(name="whose")
    account: str
    # EBS volumes: complete a snapshot before the volume is deleted. RDS: take a final snapshot.
    snapshot: bool = False

    @property
    def collector(self) -> str:
        return str(self.__struct_config__.tag)

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
    # Its ARN where the id is none: of kinds that are tagged by ARN, if it is known.
    arn: str = ""
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

    async def renew(self, lasting: timedelta) -> None:
        """Reads the identity now if a call within this time would have to read it first. Raises NoAccess."""


class ReservedClient(AwsClient, Protocol):
    """Client whose calls a lane has drawn for."""

    def unreserved(self) -> AwsClient:
        """The same identity for one more call, which draws for itself and waits for nothing: neither for tokens nor to
        read the identity."""


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
    ) -> ReservedClient:
        """With `account`, the credentials must belong to it. `paced` clients draw on the shared budgets, for callers
        without a lane, and wait a few seconds; `patient` ones wait for minutes. Raises NoAccess."""
