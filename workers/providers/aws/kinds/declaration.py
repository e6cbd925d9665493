"""Declaration of a kind of resource: how it is found, read and deleted, and what that draws on. Its functions get an
`AwsAttempt`, which has what was read, the claim, and the collector that judges the claim."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from service.contract import Verdict
from service.sources.aws import AwsAccess
from workers.handlers import evidence_age
from workers.providers.aws.arns import Arn, split_arn
from workers.providers.aws.errors import AwsError
from workers.providers.aws.model import AwsClaim, AwsClient, AwsResource
from workers.removal import Accepted, Attempt

ReadResources = Callable[[AwsClient, Sequence[str]], Awaitable[dict[str, AwsResource]]]
"""The ids that exist, in as few calls as possible; an id missing from the result is proven absent."""

ListResources = Callable[[AwsClient, Sequence[str]], AsyncIterator[AwsResource]]
"""Everything that carries one of these tag keys, with all its tags, by describe calls alone. A kind that
`lists_whole_region` has no filter: one list serves every owner in the account and region. Ownership is checked
afterwards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsAttempt(Attempt[AwsClaim, AwsResource, AwsClient]):
    """One attempt at one job on AWS. `claim` is that of the plan, updated to the latest read of its owner."""

    settings: AwsAccess

    async def clear(self) -> None:
        """The identity is read again before consent where it is due, not between consent and the call."""
        await self.client.renew(evidence_age.FRESH)
        await Attempt.clear(self)

    async def live_claim(self) -> AwsClaim:
        """Asks for consent and returns the claim as the owner describes it now."""
        await self.clear()
        latest: AwsClaim = self.judge.latest(self.job.deletion, self.claim)
        return latest


DeleteResource = Callable[[AwsAttempt], Awaitable[Accepted | Verdict | None]]
"""The delete call of an attempt that has consent. None if AWS accepted it, `Accepted` if there is more to say about
that, and a verdict if the job goes on in another lane."""

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

    `delete_operation` ends the name of the lane in which it is deleted (`ec2.DeleteSecurityGroup`), `check_operation`
    that of the lane in which its absence is proven; `limits` knows what they draw on. `service` is the SDK's name.
    """

    name: str
    service: str
    delete_operation: str
    check_operation: str
    # (service, resource type) of its ARN, as in arn:aws:ec2:REGION:ACCOUNT:security-group/sg-1.
    arn: tuple[str, str]
    # What follows the type in its ARN.
    arn_separator: str = "/"
    # Pattern of what follows the separator; that is the id for `read`, unless the whole ARN is.
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
    # It is in a VPC, which identifies its owner beside tags.
    in_vpc: bool = True
    # Every region's tagging API reports it; else it is listed by describe calls.
    in_tagging_api: bool = True
    # By operation: capacity and refill per second where AWS has a special bucket.
    limits: Mapping[str, tuple[float, float]] = {}
    delete: DeleteResource
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

    def incarnation_of(self, resource: AwsResource) -> str:
        """Tells it from an earlier and a later resource of its id; empty if ids never come back."""
        return self.incarnation(resource) if self.incarnation is not None else ""

    def arn_of_type(self, text: str) -> Arn | None:
        """The parts of an ARN of its type, well formed or not; None of any other."""
        arn = split_arn(text, self.arn_separator)
        return arn if arn is not None and (arn.service, arn.type) == self.arn else None

    @property
    def operations(self) -> frozenset[str]:
        """All operations that it may call."""
        steps = (operation for name, step in self.steps.items() for operation in (name, *step.read_operations))
        return frozenset(
            {self.delete_operation, self.check_operation, *self.read_operations, *self.lookup_operations, *steps}
        )
