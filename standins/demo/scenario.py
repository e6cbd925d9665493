"""Course of the demo: objects are created, deleted with the ordinary API, and followed until everything is done.
In the middle a replica is killed with SIGKILL, and objects are deleted that no replica watches at that moment."""

import asyncio
import time
from collections.abc import Iterable
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Final

from service.engine.installation import Installation
from service.engine.inventory import Inventory
from service.engine.kept_store import KeptStore
from service.engine.views.deletions import list_deletions
from service.engine.views.jobs import list_jobs
from service.engine.views.timeline import timeline
from service.kubernetes import NAMESPACES, connect
from service.sources.capa import AWS_FINALIZER
from service.web.shard_stats import read_shard_stats
from standins.demo.ack_resources import AckResources
from standins.demo.aws_account import ACCOUNT, REGION, AwsAccount
from standins.demo.azure_subscription import SPAN, AzureSubscription
from standins.demo.deletion_denial import DeletionDenial
from standins.demo.display import Display
from standins.demo.fleet import PROTECTION, DemoAckObject, DemoCluster, DemoNode, Fleet
from standins.demo.objects import (
    ACK_KINDS,
    AWS_CLUSTERS,
    NAMESPACE,
    NODECLAIMS,
    SOURCES,
    DemoObjects,
)
from standins.demo.processes import CLUSTER, DemoProcesses
from standins.demo.summary import DemoSummary, judge

_STEP: Final = 0.25
_REFRESH_EVERY: Final = 1.0
"""Seconds between two reads of the clouds' and the API server's lists; the numbers in Redis cost less."""
_WATCHED_WITHIN: Final = 60.0
_FINISHED_WITHIN: Final = 180.0
_KILL_AT: Final = 0.1
"""Part of AWS's resources that is gone when a replica is killed."""
_HOLD_REASON: Final = "CleanupHeld"
_BUSY_WITHIN: Final = 2.0
_MOST_JOBS: Final = 10_000
_MOST_DELETIONS: Final = 10_000
_BUCKET: Final = "aws.s3-bucket"


class DemoFailed(Exception):
    """The demo did not come as far as deleting everything; the message says why."""


async def run_scenario(processes: DemoProcesses, fleet: Fleet, display: Display) -> tuple[DemoSummary, list[str]]:
    """Everything from the first object to the last; returns the summary and what is wrong."""
    settings = processes.settings()
    # An interpreter takes a second or two to start, which the creation of resources takes as well.
    replicas = [processes.add_replica(), processes.add_replica()]
    async with AsyncExitStack() as stack:
        installation = Installation(settings, name="knell-demo")
        stack.push_async_callback(installation.aclose)
        cluster = await stack.enter_async_context(await connect(CLUSTER, settings.clusters[CLUSTER]))
        denial = DeletionDenial(cluster, settings)
        scenario = Scenario(processes, fleet, display, installation, DemoObjects(cluster), denial)
        stack.push_async_callback(scenario.account.aclose)
        with display.live():
            await scenario.create()
            await scenario.wait_until_watched(replicas)
            await scenario.try_protected()
            await scenario.delete()
            finished = await scenario.follow(time.monotonic() + _FINISHED_WITHIN)
        summary = await scenario.summary()
    problems = [f"{name} ended by itself: {processes.log_tail(name)}" for name in processes.exited()]
    problems += judge(summary)
    return summary, problems if finished or problems else ["it was not finished in time"]


class Scenario:
    def __init__(
        self,
        processes: DemoProcesses,
        fleet: Fleet,
        display: Display,
        installation: Installation,
        objects: DemoObjects,
        denial: DeletionDenial,
    ) -> None:
        self._processes, self._fleet, self._display = processes, fleet, display
        self._installation, self._objects, self._denial = installation, objects, denial
        self._subscription = AzureSubscription(processes.azure, fleet)
        self.account = AwsAccount(processes.aws, fleet)
        self._ack = AckResources(fleet, NAMESPACE)
        self._ack_uids: dict[str, list[str]] = {kind.plural: [] for kind in ACK_KINDS.values()}
        self._queue_seen_gone = False
        self._node_uids: list[str] = []
        self._clusters_left: set[str] = set()
        self._not_held: list[str] = []
        self._denials: list[str] = []
        self._deleted_anyway: list[str] = []
        self._done = 0
        self._refreshed = 0.0
        self._deleted_at = 0.0
        self._killed = ""
        self._killed_at: float | None = None
        self._taken_over: timedelta | None = None
        self._reservation_seen = False
        self._hold = ""
        self._unprotected_at: float | None = None
        self._protected_for: timedelta | None = None

    # ---- before the first deletion

    async def create(self) -> None:
        fleet, display = self._fleet, self._display
        await self._objects.define()
        await self._denial.apply()
        display.say("creating objects, and the resources that they own on AWS and Azure")
        await self._subscription.build()
        for node in fleet.nodes:
            uid = await self._objects.create_node(node.name, self._subscription.provider_id(node))
            self._node_uids.append(uid)
        display.notes = ["waiting for the stand-in for AWS to start"]
        await self.account.open()
        for number, cluster in enumerate(fleet.clusters):
            display.notes = [f"creating cluster {number + 1} of {len(fleet.clusters)}: {cluster.name}"]
            vpc = await self.account.add_cluster(cluster)
            await self._objects.create_cluster(cluster.name, REGION, vpc, cluster.annotations)
        await self.account.finish_creation()
        for one in fleet.ack:
            await self._create_ack(one)
        display.notes = []
        display.say(f"created {len(fleet.clusters)} AWSClusters and {len(fleet.nodes)} NodeClaims with their resources")
        display.say(f"created {len(fleet.ack)} objects of ACK with their resources; no controller of it runs")
        annotated = [(f"AWSCluster {one.name}", one.annotations) for one in (fleet.protected, fleet.retained)]
        for named, annotations in (*annotated, (f"Bucket {fleet.bucket.name}", fleet.bucket.annotations)):
            for annotation, value in annotations.items():
                display.say(f"{named} is annotated {annotation}: {value}")

    async def _create_ack(self, one: DemoAckObject) -> None:
        made = await self._ack.add(self.account.builder, one)
        uid = await self._objects.create_ack(one, made.spec, made.status)
        self._ack_uids[ACK_KINDS[one.kind].plural].append(uid)

    async def wait_until_watched(self, replicas: list[str]) -> None:
        """Until Knell's finalizer is on every AWSCluster, and its inventory has every NodeClaim, and the resource that
        each object of ACK names."""
        deadline = time.monotonic() + _WATCHED_WITHIN
        while not await self._watched():
            if exited := self._processes.exited():
                raise DemoFailed(f"{exited[0]} ended at once: {self._processes.log_tail(exited[0])}")
            if time.monotonic() > deadline:
                raise DemoFailed(f"the objects are not watched: {self._processes.log_tail(replicas[0])}")
            await asyncio.sleep(_STEP)
        self._display.say(f"{' and '.join(replicas)} watch them; finalizers are on the AWSClusters")

    async def _watched(self) -> bool:
        clusters = await self._objects.by_name(AWS_CLUSTERS)
        if not all(AWS_FINALIZER in one.finalizers for one in clusters.values()):
            return False
        for source, uids in self._ack_uids.items():
            found = await Inventory(self._installation, source).get_many(uids)
            if sum(bool(one.data) for one in found.values()) < len(uids):
                return False
        known = await Inventory(self._installation, NODECLAIMS.plural).get_many(self._node_uids)
        return len(known) == len(self._node_uids)

    # ---- deletions that are denied

    async def try_protected(self) -> None:
        """Deletes the protected cluster and its Namespace, which the API server denies; then what denies it is taken
        away, because the rest of the demo shows that workers heed the annotation without it, too."""
        protected, served = self._fleet.protected.name, self._objects.served(AWS_CLUSTERS)
        await self._denial.until_in_force(served, protected)
        for resource, name in ((served, protected), (NAMESPACES, NAMESPACE)):
            words = f"{resource.kind.lower()}/{name}"
            self._display.say(f"DELETE of {words}, by the API server:")
            if answer := await self._denial.delete(resource, name):
                self._denials.append(answer)
                self._display.say(answer)
            else:
                self._deleted_anyway.append(words)
        if await self._objects.is_going(AWS_CLUSTERS, protected):
            self._deleted_anyway.append(f"awscluster/{protected}")
        await self._denial.remove()
        await self._denial.until("allowed", served, protected)
        self._display.say("admission policies and webhook removed; from here on only the workers heed the annotation")

    # ---- deletions and what follows

    async def delete(self) -> None:
        self._deleted_at = time.monotonic()
        await self._subscription.reserve()
        clusters, nodes = await self._delete(late=False)
        self._display.say(f"DELETE of {clusters} AWSClusters and {nodes} NodeClaims")
        for one in self._fleet.deleted_ack:
            await self._objects.delete(ACK_KINDS[one.kind], one.name)
        named = " and ".join(f"{one.kind} {one.name}" for one in self._fleet.deleted_ack)
        self._display.say(f"DELETE of {named}, whose controllers are gone")

    async def _delete(self, *, late: bool) -> tuple[int, int]:
        clusters = [one for one in self._fleet.deleted_clusters if one.late == late]
        nodes = [one for one in self._fleet.deleted_nodes if one.late == late]
        for cluster in clusters:
            await self._objects.delete(AWS_CLUSTERS, cluster.name)
            # A retained one may be gone again by now.
            if cluster.outcome == "removed" and not await self._objects.held_by_finalizer(cluster.name):
                self._not_held.append(cluster.name)
        for node in nodes:
            await self._objects.delete(NODECLAIMS, node.name)
        return len(clusters), len(nodes)

    async def follow(self, deadline: float) -> bool:
        """Until everything is done; False when the deadline has passed or a replica ended."""
        while time.monotonic() < deadline and not self._processes.exited():
            await asyncio.sleep(_STEP)
            await self._refresh()
            self._display.progress()
            await self._kill_replica()
            await self._see_takeover()
            await self._lift_protection()
            if self._finished():
                return True
        return False

    async def _refresh(self) -> None:
        numbers = await read_shard_stats(self._installation.connections.client, self._installation.keys)
        self._done = int(sum(shard.counters["done"] for shard in numbers))
        waiting = sum(shard.gauges["queued"] for shard in numbers)
        running = sum(shard.gauges["leased"] for shard in numbers)
        if time.monotonic() - self._refreshed > _REFRESH_EVERY:
            await self._refresh_lists()
            self._refreshed = time.monotonic()
        self._show(f"jobs waiting: {waiting:.0f}, running: {running:.0f}")

    async def _refresh_lists(self) -> None:
        await self.account.refresh()
        await self._ack.refresh(self.account.builder)
        if not self._queue_seen_gone and not self._ack.exists(self._fleet.queue):
            self._queue_seen_gone = True
            self._display.say(f"AWS: queue {self._fleet.queue.name} is gone")
        await self._subscription.refresh()
        self._clusters_left = set(await self._objects.by_name(AWS_CLUSTERS))
        if self._subscription.reservation.refused and not self._reservation_seen:
            self._reservation_seen = True
            span = f"{SPAN.total_seconds():.0f} s"
            self._display.say(f"Azure: interface {self._subscription.interface} is reserved for another VM for {span}")

    def _show(self, queues: str) -> None:
        fleet, account, subscription = self._fleet, self.account, self._subscription
        clusters = sum(one.name not in self._clusters_left for one in fleet.deleted_clusters)
        throttled = f"throttled calls: AWS {account.throttled}, Azure {subscription.throttled}"
        retained, of = account.existing_of(fleet.retained)
        self._display.bars = [
            ("clusters on AWS", clusters, len(fleet.deleted_clusters)),
            *((f"  {kind}", *numbers) for kind, numbers in account.progress().items()),
            ("nodes on Azure", subscription.nodes_gone, len(fleet.deleted_nodes)),
            *((f"  {kind}", *numbers) for kind, numbers in subscription.progress().items()),
        ]
        self._display.notes = [
            self._protection_note(),
            f"{fleet.retained.name}: retained, {retained} of its {of} resources there",
            self._ack_note(),
            self._reservation_note(),
            f"{throttled}; {queues}",
        ]
        gone, of = account.total
        gone_azure, of_azure = subscription.total
        self._display.headline = f"gone: AWS {gone}/{of}, Azure {gone_azure}/{of_azure}; {throttled}; {queues}"

    def _protection_note(self) -> str:
        there, of = self.account.existing_of(self._fleet.protected)
        state = "protected" if self._unprotected_at is None else "no longer protected"
        return f"{self._fleet.protected.name}: {state}, {there} of its {of} resources there"

    def _ack_note(self) -> str:
        queue, bucket = self._fleet.queue, self._fleet.bucket
        there = {one.name: "there" if self._ack.exists(one) else "gone" for one in (queue, bucket)}
        return f"queue {queue.name}: {there[queue.name]}; bucket {bucket.name}: retained, {there[bucket.name]}"

    def _reservation_note(self) -> str:
        interface, reservation = self._subscription.interface, self._subscription.reservation
        if reservation.called is not None:
            return f"{interface}: deleted after its reservation"
        if reservation.until is None:
            return f"{interface}: reserved for another VM, no delete yet"
        rest = reservation.until - time.time()
        return f"{interface}: reserved for another VM, " + (f"{rest:.0f} s left" if rest > 0 else "may be deleted now")

    # ---- the kill

    async def _kill_replica(self) -> None:
        """Kills the replica that watches the AWSClusters, once AWS resources are gone and the reservation is recorded,
        and deletes the rest of the objects."""
        gone, of = self.account.total
        if self._killed or gone < _KILL_AT * of or not await self._reservation_recorded():
            return
        holders = await self._objects.lease_holders()
        watcher = holders.get(AWS_CLUSTERS.plural, "")
        await self._until_busy(watcher)
        self._killed = self._processes.kill_replica(watcher)
        self._killed_at = time.time()
        watched = [source for source, name in holders.items() if name == self._killed]
        self._display.say(f"kill -9 of {self._killed}, watching {', '.join(watched) or 'nothing'}")
        clusters, nodes = await self._delete(late=True)
        self._display.say(f"DELETE of {clusters} more AWSClusters and {nodes} more NodeClaims meanwhile")
        self._display.say(f"{self._processes.add_replica()} started")

    async def _until_busy(self, replica: str) -> None:
        """Until that replica has leased jobs, which others have to take over; not for long."""
        deadline = time.monotonic() + _BUSY_WITHIN
        while time.monotonic() < deadline:
            leased = (await list_jobs(self._installation, state="leased", limit=_MOST_JOBS)).jobs
            if any(job.worker.startswith(replica) for job in leased):
                return

    async def _reservation_recorded(self) -> bool:
        """Whether Redis has the refusal: a refusal that only the killed replica knew would be met once more."""
        if not self._reservation_seen:
            return False
        if self._subscription.reservation.called is not None:
            return True
        waiting = (await list_jobs(self._installation, state="waiting", limit=_MOST_JOBS)).jobs
        return any(job.target == self._subscription.interface and job.verdict == "blocked" for job in waiting)

    async def _see_takeover(self) -> None:
        if self._killed_at is None or self._taken_over is not None:
            return
        holders = await self._objects.lease_holders()
        if len(holders) == len(SOURCES) and self._killed not in holders.values():
            self._taken_over = timedelta(seconds=round(time.time() - self._killed_at, 1))
            names = " and ".join(sorted(set(holders.values())))
            self._display.say(f"{names} took over the watches, {self._taken_over.total_seconds():.1f} s after the kill")

    # ---- the protection

    async def _lift_protection(self) -> None:
        """Once the protected cluster was reported as held, and the kill is over."""
        if self._unprotected_at is not None or self._taken_over is None:
            return
        reason, message = await self._objects.condition(self._fleet.protected.name)
        if reason != _HOLD_REASON:
            return
        self._hold = message
        self._unprotected_at = time.time()
        self._protected_for = timedelta(seconds=round(time.monotonic() - self._deleted_at, 1))
        await self._objects.annotate(AWS_CLUSTERS, self._fleet.protected.name, PROTECTION, None)
        self._display.say(f"annotation {PROTECTION} removed from {self._fleet.protected.name}")

    # ---- the end

    def _finished(self) -> bool:
        clouds = self.account.finished and self._ack.finished and self._subscription.finished
        objects = not any(one.name in self._clusters_left for one in self._fleet.deleted_clusters)
        return clouds and objects and self._taken_over is not None and self._done >= self._fleet.deletions

    async def summary(self) -> DemoSummary:
        took = timedelta(seconds=round(time.monotonic() - self._display.started, 1))
        fleet = self._fleet
        await self._refresh_lists()
        numbers = await read_shard_stats(self._installation.connections.client, self._installation.keys)
        there = {f"{kind.name} {name}" for kind in SOURCES for name in await self._objects.by_name(kind)}
        deleted = _named(fleet.deleted_clusters, fleet.deleted_nodes, fleet.deleted_ack)
        every = _named(fleet.clusters, fleet.nodes, fleet.ack)
        return DemoSummary(
            api=self._processes.api.kind,
            clusters=len(fleet.deleted_clusters),
            nodes=len(fleet.deleted_nodes),
            ack_objects=len(fleet.deleted_ack),
            deletions=fleet.deletions,
            done=int(sum(shard.counters["done"] for shard in numbers)),
            objects_left=sorted(there & deleted),
            objects_missing=sorted(every - deleted - there),
            not_held=self._not_held,
            protected=fleet.protected.name,
            denials=self._denials,
            deleted_anyway=sorted(set(self._deleted_anyway)),
            hold=self._hold,
            protected_for=self._protected_for,
            retained=fleet.retained.name,
            killed=self._killed,
            taken_over=self._taken_over,
            given_back=int(sum(shard.counters["reclaimed"] for shard in numbers)),
            events=dict(await self._objects.events()),
            # While the annotation is there, no call may change the protected cluster's resources.
            aws=self.account.summary(self._unprotected_at or time.time()),
            ack=self._ack.summary(self.account.entries, *await self._told_of(fleet.bucket)),
            azure=self._subscription.summary(self._killed_at),
            took=took,
        )

    async def _told_of(self, one: DemoAckObject) -> tuple[str, str]:
        """What Knell's record of kept resources and its audit say of a bucket; empty if nothing."""
        kept = await KeptStore(self._installation).decisions(f"aws/{ACCOUNT}/{REGION}", f"{_BUCKET}:{one.name}")
        return next((decision.why for decision in kept), ""), await self._audit_of(one)

    async def _audit_of(self, one: DemoAckObject) -> str:
        """The policy for the deletion of that object."""
        resource = ACK_KINDS[one.kind].resource
        for view in (await list_deletions(self._installation, state="done", limit=_MOST_DELETIONS)).deletions:
            if (view.resource, view.name) == (resource, one.name):
                pages = [page.moments async for page in timeline(self._installation, view)]
                return next((entry.why for page in pages for entry in page if entry.what == "policy"), "")
        return ""


def _named(
    clusters: Iterable[DemoCluster], nodes: Iterable[DemoNode], ack: Iterable[DemoAckObject]
) -> set[str]:  # fmt: skip
    """Objects as the summary names them."""
    return {
        *(f"AWSCluster {one.name}" for one in clusters),
        *(f"NodeClaim {one.name}" for one in nodes),
        *(f"{one.kind} {one.name}" for one in ack),
    }
