"""Judge of claims of Cluster API clusters: what the AWS provider asks about a resource that it is about to remove. By
its tags and VPC as they were just read, and by what was last read of the object."""

from collections.abc import Mapping
from typing import Final

import msgspec

from service.contract import Job
from service.sources.capa import EXTERNAL_RESOURCE_TASKS, AwsSettings
from workers.collectors.capa.claim import CapaClaim, OwnerTag
from workers.collectors.capa.latest_objects import LatestObjects
from workers.collectors.capa.ownership import age_objection, ownership_objection, removed_by, tag_objection
from workers.providers.aws.claims import Kept
from workers.providers.aws.model import AwsResource

CLUSTER_TAG: Final = "knell.dev/cluster-name"
"""Tag of a snapshot with the name of the cluster that the volume belonged to."""


class CapaJudge:
    """Implements the ClaimJudge of the AWS provider."""

    claim_type = CapaClaim

    def __init__(self, settings: AwsSettings, latest_objects: LatestObjects) -> None:
        self._settings, self._latest_objects = settings, latest_objects

    def owns(self, claim: CapaClaim, found: AwsResource) -> str | None:
        return ownership_objection(found, claim)

    def older(self, claim: CapaClaim, found: AwsResource) -> str:
        return age_objection(found, claim, self._settings)

    def latest(self, deletion: str, claim: CapaClaim) -> CapaClaim:
        return self._latest_objects.updated(deletion, claim)

    def require_wanted(self, job: Job, claim: CapaClaim) -> None:
        self._latest_objects.require_wanted(job, claim)

    def removes_too(self, claim: CapaClaim, other: AwsResource) -> bool | None:
        """Security groups have either of the two tags, and those with the other one go by another task."""
        if tag_objection(other, claim) is None:
            return True
        by: OwnerTag = "ccm" if claim.by == "lbc" else "lbc"
        if tag_objection(other, msgspec.structs.replace(claim, by=by)) is not None:
            return False
        return True if claim.both else None

    def removed_by(self, claim: CapaClaim, other: AwsResource) -> str:
        return removed_by(other, claim)

    def kept(self, claim: CapaClaim, other: AwsResource) -> Kept | None:
        if other.id in claim.spared:
            return Kept("that was abandoned")
        if claim.by == "ccm" and not claim.balancers:
            return Kept(
                "of the cluster that is not to go",
                f"add the task load-balancer (annotation {EXTERNAL_RESOURCE_TASKS}), with which it goes",
            )
        return None

    def label(self, claim: CapaClaim) -> str:
        return f"cluster {claim.name}"

    def snapshot_tags(self, claim: CapaClaim) -> Mapping[str, str]:
        return {CLUSTER_TAG: claim.name}
