"""Objects as the consent check records them, for tests that call a handler without the collector."""

from collections.abc import Iterable

import msgspec

from service.contract import Job
from service.sources.capa import AWS_CLUSTERS, TASKS, Task
from workers.collectors.capa.capa_object import CapaObject
from workers.collectors.capa.claim import CapaClaim
from workers.collectors.capa.final_check import FINAL_CHECK, FinalCheckData
from workers.collectors.capa.kinds import BALANCER_TASK, CONTROLLER_TASK
from workers.collectors.capa.latest_objects import LatestObjects, ObjectState
from workers.providers.aws.claims import ClaimRegistry


def object_state(claim: CapaClaim, tasks: tuple[Task, ...] | None = None) -> ObjectState:
    """The object that a claim was planned for, unchanged since; without `tasks`, it wants all that leave the claim as
    it is."""
    scope = claim.scope
    subject = CapaObject(
        resource=AWS_CLUSTERS, namespace=scope.namespace, object=claim.name, uid="1", cluster=claim.name,
        cluster_uid="1", name=claim.name, region=scope.region, vpc=claim.vpc, spared=claim.spared,
        identity=scope.identity, records=(), annotations={}, vpc_deleted=False,
        deletion_timestamp="2026-11-16T20:00:00Z", has_finalizer=True, made=claim.made, adopted=claim.adopted,
    )  # fmt: skip
    without = set[Task]() if claim.balancers else {BALANCER_TASK}
    if not claim.both:
        without.add(CONTROLLER_TASK if claim.by == "ccm" else "security-group")
    wanted = tuple(task for task in TASKS if task not in without) if tasks is None else tasks
    return ObjectState(subject=subject, source=scope.source, account=claim.account, tasks=wanted)


def record_object(latest_objects: LatestObjects, deletion: str, data: str) -> None:
    """Data that is no claim of a cluster is not recorded."""
    try:
        claim = msgspec.json.decode(data, type=CapaClaim)
    except msgspec.DecodeError:
        return
    latest_objects.record(deletion, object_state(claim))


def record_consents(claims: ClaimRegistry, jobs: Iterable[Job]) -> None:
    """Consent to final checks, for the objects that they were planned for."""
    for job in jobs:
        claim = msgspec.json.decode(job.data, type=FinalCheckData).claim
        claims.consented(claim.collector, job.deletion, claim.scope, claim.account)


def record_objects(latest_objects: LatestObjects, jobs: Iterable[Job]) -> LatestObjects:
    """Records the objects of jobs as they were planned, as consent does."""
    for job in jobs:
        if job.kind == FINAL_CHECK:
            planned = msgspec.json.decode(job.data, type=FinalCheckData)
            latest_objects.record(job.deletion, object_state(planned.claim, planned.tasks))
        else:
            record_object(latest_objects, job.deletion, job.data)
    return latest_objects
