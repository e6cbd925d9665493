"""Settings of clusters on AWS, and feature flags.
The defaults are cautious; a cluster's annotation may choose among the allowed tasks."""

from datetime import timedelta
from typing import Annotated, Literal

import msgspec

from service.contract.aws import CAPA_NAMESPACE, DEFAULT_TASKS, FEATURE, Task
from service.settings.durations import NotNegative, Positive


class FeatureSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Feature flags, off by default, by the names that other projects use."""

    # Collectors of Cluster API clusters. When it is switched off again, objects with our finalizer wait until it is on.
    external_resource_gc: bool = msgspec.field(default=False, name=FEATURE)

    def on(self, feature: str) -> bool:
        """An empty name is always on, an unknown one is off."""
        return not feature or (feature == FEATURE and self.external_resource_gc)


class AwsSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    # Kinds of resources that are deleted with a cluster, unless its annotation names others.
    tasks: tuple[Task, ...] = DEFAULT_TASKS
    # Tasks that a cluster's annotation may choose; default: those in `tasks`.
    allowed_tasks: tuple[Task, ...] | None = None
    # Through the tagging API, through describe calls, or (auto) the former where it is available.
    finding: Literal["auto", "tagging", "describe"] = "auto"
    # How long after the last removal a fresh list must be empty before the finalizer is removed.
    settle: NotNegative = timedelta(seconds=60)
    # EBS volumes (task volume): a snapshot is completed before the volume is deleted.
    snapshot_first: bool = False
    # Else a load balancer with deletion protection blocks the deletion.
    lift_deletion_protection: bool = False
    # Revoke rules of foreign security groups that refer to the cluster's own groups; no other rules.
    revoke_foreign_rules: bool = False
    # Retained, abandoned or dropped resources get the tag knell.dev/retained, where permissions allow it.
    mark_retained: bool = True
    # Else a resource more than an hour older than its object is held: it may belong to an earlier one of that name.
    accept_older: bool = False
    # Whether the annotation knell.dev/adopted may allow the same for one object.
    allow_adopted: bool = False
    # The account that the credentials of the process must belong to.
    account: Annotated[str, msgspec.Meta(pattern=r"\A\d{12}\Z", description="12 digits, in quotes")] | None = None
    # One endpoint for all services: that of a stand-in, or of a VPC endpoint.
    endpoint: Annotated[str, msgspec.Meta(pattern=r"\Ahttps?://\S+\Z", description="http(s)://host:port")] | None = None
    # The namespace of Cluster API Provider AWS, with the Secrets of static identities.
    identity_namespace: Annotated[str, msgspec.Meta(min_length=1)] = CAPA_NAMESPACE
    # How long after a deletion its absence is checked, and how often draining interfaces are checked.
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
