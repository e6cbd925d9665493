"""How external resources of clusters on AWS are found and removed, and which features are on at all.
Everything here has a default that removes little and asks much; a cluster's own annotation may choose among the tasks
that are allowed."""

from datetime import timedelta
from typing import Annotated, Literal

import msgspec

from service.contract.aws import CAPA_NAMESPACE, DEFAULT_TASKS, FEATURE, Task
from service.settings.durations import NotNegative, Positive


class FeatureSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is off until it is set, by the names under which it is known elsewhere."""

    # Collectors of Cluster API clusters. Switched off again, what is marked already waits until it is on.
    external_resource_gc: bool = msgspec.field(default=False, name=FEATURE)

    def on(self, feature: str) -> bool:
        """An empty name needs nothing to be on; one that nobody knows is off."""
        return not feature or (feature == FEATURE and self.external_resource_gc)


class AwsSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    # Which kinds of resources go with a cluster, where its annotation does not say.
    tasks: tuple[Task, ...] = DEFAULT_TASKS
    # Among which a cluster's annotation may choose; without it, among `tasks`.
    allowed_tasks: tuple[Task, ...] | None = None
    # By the tagging API, by describe calls, or by the first unless it can't be used.
    finding: Literal["auto", "tagging", "describe"] = "auto"
    # So long after everything is gone a fresh list has to be empty before the object is let go.
    settle: NotNegative = timedelta(seconds=60)
    # EBS volumes (task volume): a snapshot is complete before the volume goes.
    snapshot_first: bool = False
    # Else a balancer with deletion protection is named as what is in the way.
    lift_deletion_protection: bool = False
    # Rules of security groups that are not the cluster's: only references to the cluster's own groups.
    revoke_foreign_rules: bool = False
    # What is retained, abandoned or dropped gets the tag knell.dev/retained, where permissions allow it.
    mark_retained: bool = True
    # Else a resource that is more than an hour older than its object is held: it may be another's of that name.
    accept_older: bool = False
    # Whether the annotation knell.dev/adopted on an object may say the same for that one.
    allow_adopted: bool = False
    # The account that the process's own credentials have to lead to.
    account: Annotated[str, msgspec.Meta(pattern=r"\A\d{12}\Z", description="12 digits, in quotes")] | None = None
    # One address for all services: that of a stand-in, or of a VPC endpoint.
    endpoint: Annotated[str, msgspec.Meta(pattern=r"\Ahttps?://\S+\Z", description="http(s)://host:port")] | None = None
    # Where Cluster API Provider AWS runs: the Secrets of static identities are there.
    identity_namespace: Annotated[str, msgspec.Meta(min_length=1)] = CAPA_NAMESPACE
    # How long after a deletion its absence is looked for, and how often draining interfaces are looked at.
    check_after: Positive = timedelta(seconds=5)
    drain_check: Positive = timedelta(seconds=3)

    @property
    def allowed(self) -> tuple[Task, ...]:
        return self.tasks if self.allowed_tasks is None else self.allowed_tasks

    def contradictions(self) -> list[tuple[str, str]]:
        if not self.tasks:
            return [("aws.tasks", "names no task; where nothing is to be removed, take the source out or pause it")]
        if beyond := [task for task in self.tasks if task not in self.allowed]:
            return [("aws.tasks", f"names {', '.join(beyond)}, which aws.allowed_tasks does not allow")]
        return []
