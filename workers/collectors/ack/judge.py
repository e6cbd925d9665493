"""Judge of claims of ACK's objects: whether a resource that was just read has the tags that ACK writes for the object,
and whether the object still means it. Tags of ACK are weak alone: a tenant can write them, so that account, region and
identifier count beside them."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from service.contract import Job
from service.sources.ack import CONTROLLER_TAG, NAMESPACE_TAG, AckSettings
from workers.collectors.ack.claim import AckClaim
from workers.collectors.ack.types import TYPES
from workers.handlers.protocol import RECHECK_AFTER, NotCleared
from workers.providers.aws.claims import MAX_DELETIONS, Kept
from workers.providers.aws.model import AwsResource

OWNER_TAG: Final = "knell.dev/owner"
"""Tag of a snapshot with the object that the database belonged to."""

MAX_OLDER: Final = timedelta(hours=1)
"""How much older than its object a resource may be: clocks differ, and objects are recreated."""


class AckJudge:
    """Implements the ClaimJudge of the AWS provider. `record` has the claim that an object's deletion was consented
    for: a job with another one is not carried out."""

    claim_type = AckClaim

    def __init__(self, settings: AckSettings) -> None:
        self._settings = settings
        # By deletion: the claim as of the last consent.
        self._consented: dict[str, AckClaim] = {}

    def record(self, deletion: str, claim: AckClaim) -> None:
        self._consented.pop(deletion, None)
        self._consented[deletion] = claim
        if len(self._consented) > MAX_DELETIONS:
            del self._consented[next(iter(self._consented))]

    def owns(self, claim: AckClaim, found: AwsResource) -> str | None:
        if found.id != claim.identifier:
            return f"{found.id} is not what {claim.label} names, which is {claim.identifier}"
        row = TYPES.get(f"{claim.service}/{claim.kind}")
        if row is None:
            return f"{claim.kind} of {claim.service} is not in the table of ACK's kinds"
        return self._tag_objection(claim, found, readable=row.tagged)

    def older(self, claim: AckClaim, found: AwsResource) -> str:
        if self._settings.accept_older or not claim.made or found.made is None:
            return ""
        made = datetime.fromtimestamp(claim.made / 1000, UTC)
        if made - found.made <= MAX_OLDER:
            return ""
        return (
            f"{found.id} was made {found.made:%Y-%m-%dT%H:%M:%SZ}, long before its object ({made:%Y-%m-%dT%H:%M:%SZ}), "
            f"so that ACK may not have created it; if it did, the setting ack.accept_older says so; "
            f"`knell jobs abandon` releases the object without it"
        )

    def latest(self, deletion: str, claim: AckClaim) -> AckClaim:
        """Only whether a snapshot is wanted may have changed."""
        now = self._consented.get(deletion)
        return claim if now is None else msgspec.structs.replace(claim, snapshot=now.snapshot)

    def require_wanted(self, job: Job, claim: AckClaim) -> None:
        now = self._consented.get(job.deletion)
        fault = "no object consented to it" if now is None else _difference(job, claim, now)
        if fault:
            raise NotCleared(
                f"{fault}: if the object was changed, set it back; `knell jobs abandon` leaves this where it is",
                RECHECK_AFTER,
                refused=True,
                deletion=job.deletion,
            )

    def removes_too(self, claim: AckClaim, other: AwsResource) -> bool:
        """An object has one resource."""
        return self.owns(claim, other) is None

    def removed_by(self, _claim: AckClaim, _other: AwsResource) -> str:
        return ""

    def kept(self, _claim: AckClaim, _other: AwsResource) -> Kept | None:
        return None

    def label(self, claim: AckClaim) -> str:
        return claim.label

    def snapshot_tags(self, claim: AckClaim) -> Mapping[str, str]:
        return {OWNER_TAG: f"{claim.service}/{claim.kind}/{claim.scope.namespace}/{claim.name}"}

    # ---- tags

    def _tag_objection(self, claim: AckClaim, found: AwsResource, *, readable: bool) -> str | None:
        service = self._settings.service(claim.service)
        wanted = {key: _expanded(value, claim) for key, value in service.tags.items()}
        present = [key for key in (wanted or (NAMESPACE_TAG, CONTROLLER_TAG)) if key in found.tags]
        if not present:
            return None if service.untagged == "seen" else _untagged(claim, found, readable=readable)
        for key, value in wanted.items():
            if found.tags.get(key) != value:
                return f"{found.id} is not tagged {key}={value}, but {_shown(found, key)}"
        return None if wanted else _default_tags_objection(claim, found)


def _default_tags_objection(claim: AckClaim, found: AwsResource) -> str | None:
    namespace = claim.scope.namespace
    if found.tags.get(NAMESPACE_TAG) != namespace:
        return f"{found.id} is not tagged {NAMESPACE_TAG}={namespace}, but {_shown(found, NAMESPACE_TAG)}"
    if not found.tags.get(CONTROLLER_TAG, "").startswith(f"{claim.service}-"):
        return f"{found.id} is not tagged {CONTROLLER_TAG}={claim.service}-..., but {_shown(found, CONTROLLER_TAG)}"
    return None


def _shown(found: AwsResource, key: str) -> str:
    value = found.tags.get(key)
    return f"has no tag {key}" if value is None else f"{key}={value}"


def _untagged(claim: AckClaim, found: AwsResource, *, readable: bool) -> str:
    why = "has none of ACK's tags" if readable else "can't be read with its tags"
    return (
        f"{found.id} {why}, so nothing shows that it is of {claim.label}; ack.services.{claim.service}.untagged: seen "
        f"accepts that its object was seen synced with this identifier"
    )


def _expanded(value: str, claim: AckClaim) -> str:
    for name, text in (
        ("%K8S_NAMESPACE%", claim.scope.namespace),
        ("%K8S_RESOURCE_NAME%", claim.name),
        ("%K8S_RESOURCE_KIND%", claim.kind),
    ):
        value = value.replace(name, text)
    return value


def _difference(job: Job, claim: AckClaim, now: AckClaim) -> str:
    """What a planned claim, or the job that has it, says otherwise than the object."""
    if (job.kind, job.target) != (now.removes, now.identifier):
        return f"this job is about {job.kind} {job.target}, and {now.label} means {now.removes} {now.identifier}"
    planned = msgspec.structs.replace(claim, snapshot=now.snapshot)
    if planned == now:
        return ""
    changed = [name for name in AckClaim.__struct_fields__ if getattr(planned, name) != getattr(now, name)]
    return f"the claim of this job is of {claim.label}, and differs from {now.label} in {', '.join(changed)}"
