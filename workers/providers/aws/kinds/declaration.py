"""Declaration of a kind of resource: how it is found, read and deleted, and what that draws on. Its functions get an
`AwsAttempt`, which has what was read, the claim, and the collector that judges the claim."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Any, NamedTuple

import msgspec

from service.contract import Job, Verdict
from service.sources.aws import AwsAccess
from workers.handlers import evidence_age
from workers.providers.aws.arns import Arn, split_arn
from workers.providers.aws.errors import AwsError
from workers.providers.aws.model import AwsClaim, AwsClient, AwsResource
from workers.providers.aws.services import TAGGING, TagCalls, service_named, tag_calls_of
from workers.removal import Accepted, Attempt, RemovalProgress

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


class AbsentResource(NamedTuple):
    """A job whose resource does not exist any more, what earlier attempts of it recorded, and the resource that has its
    name by now, if any."""

    job: Job
    progress: RemovalProgress
    namesake: AwsResource | None = None


CheckAbsent = Callable[[AwsClient, Sequence[AbsentResource]], Awaitable[Mapping[str, Verdict | Exception]]]
"""By job id, verdicts of those jobs that are not done although their resource is absent; an AwsError is translated, and
another exception is a failed attempt."""


class KindStep(msgspec.Struct, frozen=True, kw_only=True):
    """What a kind does in an additional lane. `read_operations` are those of `lookup`; with `checks_ownership` the
    resource is read and its ownership checked first, as for a deletion. `setting` must be on for the step to run."""

    run: StepAction
    lookup: Lookup | None = None
    read_operations: tuple[str, ...] = ()
    checks_ownership: bool = True
    setting: str = ""


def creation_time(resource: AwsResource) -> str:
    """An `incarnation` where AWS gives a resource no id beside its name."""
    return resource.made.astimezone(UTC).isoformat() if resource.made is not None else ""


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
    # None for a kind that is only found by its identifier.
    list_all: ListResources | None = None
    # Its list covers the whole account and region.
    lists_whole_region: bool = False
    # It is in a VPC, which identifies its owner beside tags.
    in_vpc: bool = True
    # Every region's tagging API reports it; else it is listed by describe calls.
    in_tagging_api: bool = True
    # The tagging API tags it, by the `arn` of the resource as it was read; else its service does, by id.
    tagged_by_arn: bool = False
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
    # The same resource may have another incarnation later.
    incarnation_may_change: bool = False
    # What must be true beside its absence: a final snapshot of it is complete.
    check_absent: CheckAbsent | None = None
    # How it is tagged, if not as the rest of its service.
    tag_calls: TagCalls | None = None
    # Calls for some of its resources only: no lane reserves them.
    rare_operations: tuple[str, ...] = ()
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

    @property
    def tagging(self) -> TagCalls | None:
        """How it is tagged; None if its service says why it is not. Raises Undeclared."""
        if self.tag_calls is None and service_named(self.tag_service).untagged:
            return None
        return self.tag_calls or tag_calls_of(self.tag_service)

    @property
    def tag_service(self) -> str:
        """The service that tags it."""
        return TAGGING if self.tagged_by_arn else self.service

    def arn_of_type(self, text: str) -> Arn | None:
        """The parts of an ARN of its type, well formed or not; None of any other."""
        arn = split_arn(text, self.arn_separator)
        return arn if arn is not None and (arn.service, arn.type) == self.arn else None

    @property
    def operations(self) -> frozenset[str]:
        """All operations that it may call."""
        steps = (operation for name, step in self.steps.items() for operation in (name, *step.read_operations))
        reads = (*self.read_operations, *self.lookup_operations, *self.rare_operations)
        return frozenset({self.delete_operation, self.check_operation, *reads, *steps})
