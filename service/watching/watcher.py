"""Watcher: runs every cluster and every share of a process under one root task group, and reports their health.
A problem of one cluster or source never stops the others; a signal releases every Lease at once."""

import asyncio
import contextlib
import os
import random
import secrets
import signal
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import structlog
from prometheus_client.core import Metric

from service.engine.batch_reads import to_datetime
from service.engine.epoch import EpochTracker, run_unless_stopped
from service.engine.installation import Installation
from service.engine.inventory import Inventory, end_undeclared_sources
from service.engine.lease_counters import LeaseCounterStore, restore_reason
from service.kubernetes import RecentObjects
from service.policy.selectors import InvalidSelector, parse_selector
from service.settings import Problem, Settings, SettingsError, check_collectors
from service.watching.cluster_identity import ClusterIdentities
from service.watching.cluster_watch import ClusterWatch
from service.watching.share_lease import ShareLease
from service.watching.shares import ReplicaPresence, ShareBalance, shares_of
from service.web import ClusterStats, Hindrance, SourceStats, watch_metric_families

log = structlog.get_logger(__name__)

EPOCH_CHECK: Final = 5.0
"""Seconds between two checks of the Redis epoch, unless a reconnect causes one sooner."""


class WatcherStopped(Exception):
    """Raised inside the root task group to end its loops."""


class Watcher:
    def __init__(
        self, settings: Settings, installation: Installation, recent_objects: RecentObjects | None = None
    ) -> None:
        """`recent_objects` are for a worker in the same process. Raises SettingsError if the sources can't be watched
        as they are declared."""
        check_sources(settings)
        self.settings, self.installation = settings, installation
        # A restarted container may keep its name, and must not take the Lease of its predecessor for its own.
        self.holder = f"{settings.worker.name}_{secrets.token_hex(4)}"
        self.ready = False
        self._epochs = EpochTracker(installation.shards)
        self._stop = asyncio.Event()
        self._doubt = asyncio.Event()
        self._presence = ReplicaPresence(installation, self.holder)
        balance = ShareBalance(self._presence, sum(source.shares for source in settings.sources.values()))
        share_leases = [
            ShareLease(share, settings, installation, balance, self.holder, recent_objects)
            for name, source in settings.sources.items()
            for share in shares_of(name, source)
        ]
        # Replicas that start together try the shares in different orders, so that each gets some.
        random.shuffle(share_leases)
        identities, lease_counters = ClusterIdentities(settings, installation), LeaseCounterStore(installation)
        self.cluster_watches = [
            ClusterWatch(
                name,
                settings,
                identities,
                lease_counters,
                [share_lease for share_lease in share_leases if share_lease.cluster == name],
            )
            for name in settings.clusters
        ]

    @property
    def share_leases(self) -> list[ShareLease]:
        found = [share_lease for cluster_watch in self.cluster_watches for share_lease in cluster_watch.share_leases]
        return sorted(found, key=lambda share_lease: (share_lease.share.source, share_lease.share.part))

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    def stop(self) -> None:
        """Releases every Lease and ends `run`."""
        if not self._stop.is_set():
            log.info(
                "watch side stopping",
                holder=self.holder,
                held=sum(share_lease.held for share_lease in self.share_leases),
            )
        self._stop.set()

    def handle_signals(self) -> None:
        """SIGTERM and SIGINT stop; a second one ends the process at once."""
        on_signals([self.stop])

    async def run(self) -> None:
        """Watch until stopped."""
        if not await run_unless_stopped(self._stop, self._prepare()):
            return
        log.info("watching", holder=self.holder, clusters=len(self.cluster_watches), shares=len(self.share_leases))
        with contextlib.suppress(WatcherStopped):
            try:
                async with asyncio.TaskGroup() as root:
                    for cluster_watch in self.cluster_watches:
                        root.create_task(cluster_watch.run())
                    root.create_task(self._watch_redis())
                    root.create_task(self._wait_for_stop())
                    self.ready = True
            except* WatcherStopped:
                pass
        self.ready = False
        log.info("watch side stopped", holder=self.holder)

    async def _prepare(self) -> None:
        await self._epochs.check()
        for name in await end_undeclared_sources(self.installation, self.settings.sources):
            log.warning("source is no longer declared, its inventory is not used again", source=name)

    async def _watch_redis(self) -> None:
        """Checks the Redis epoch: after a possible loss of writes every source is listed again, which publishes again
        what is missing. Also announces this replica."""
        self.installation.caller.on_available.append(self._doubt.set)
        while True:
            if any(cluster_watch.up for cluster_watch in self.cluster_watches) and not all(
                share_lease.problem for share_lease in self.share_leases
            ):
                await self._presence.announce()
            await self._forward_relists()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(EPOCH_CHECK):
                    await self._doubt.wait()
            self._doubt.clear()
            await self._epochs.check()

    async def _forward_relists(self) -> None:
        """Passes the relist request of a shard on to every source, and removes it when all of them have listed
        since."""
        caller = self.installation.caller
        for shard in self.installation.shards:
            requested = await caller.command("HGET", shard.stem + "meta", "relist")
            if requested is None:
                continue
            listed = [await self._listed_since(source, int(requested)) for source in self.settings.sources]
            if all(listed):
                log.info("every source was listed again", shard=shard.number)
                await caller.command("HDEL", shard.stem + "meta", "relist", "relist_why")

    async def _listed_since(self, source: str, requested: int) -> bool:
        """Requests the list unless another replica has."""
        memory, declared = Inventory(self.installation, source), self.settings.sources[source]
        facts = await memory.state()
        # By the stored request, which has the time of the Redis server, unlike this process.
        if int(facts.get("relist", 0)) < requested:
            await memory.request_relist()
            return False
        labels = [label for share in shares_of(source, declared) for label in share.list_labels(declared.namespaces)]
        fields = [f"listed_at@{label}" if label else "listed_at" for label in labels]
        return all(int(facts.get(field, 0)) >= requested for field in fields)

    async def _wait_for_stop(self) -> None:
        await self._stop.wait()
        self.ready = False
        with contextlib.suppress(TimeoutError):
            # Best effort: the entry expires anyway, and Redis may be unreachable.
            async with asyncio.timeout(0.5):
                await self._presence.leave()
        raise WatcherStopped


def on_signals(stops: Sequence[Callable[[], None]]) -> None:
    """The first SIGTERM or SIGINT stops all of them, the second one ends the process at once."""
    loop = asyncio.get_running_loop()
    received: list[signal.Signals] = []

    def on_signal(number: signal.Signals) -> None:
        if received:
            log.warning("second signal, ending at once", signal=number.name)
            # Not by cancelling: tasks that wait for an unreachable server would go on waiting. Leases expire.
            os._exit(128 + number)
        received.append(number)
        for stop in stops:
            stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)


def check_sources(settings: Settings) -> None:
    """Checks collectors and selectors of the declared sources. Raises SettingsError."""
    check_collectors(settings.sources)
    problems = []
    for name, source in settings.sources.items():
        for key in ("selector", "opt_in", "opt_out"):
            try:
                parse_selector(getattr(source, key), key)
            except InvalidSelector as error:
                problems.append(Problem(f"sources.{name}.{key}", str(error)))
    if problems:
        raise SettingsError(problems)


class WatchHealth:
    """Readiness, problems and metrics of the watch side for `service/web`. A problem of a source is shown and leaves
    the process ready; a name that leads to another cluster than before does not. `watcher` is None during the start."""

    watcher: Watcher | None = None

    def stage(self) -> str:
        if self.watcher is None:
            return "starting"
        if self.watcher.stopping:
            return "stopping"
        return "working" if self.watcher.ready else "starting"

    def hindrances(self) -> list[Hindrance]:
        """Why the process is not ready: a refused cluster in any case, unreachable ones only if none is reachable."""
        if self.watcher is None:
            return []
        cluster_watches = self.watcher.cluster_watches
        found = [
            Hindrance(what=f"cluster {cluster_watch.name}", why=cluster_watch.problem, since=cluster_watch.since)
            for cluster_watch in cluster_watches
            if cluster_watch.refused
        ]
        if cluster_watches and not any(cluster_watch.up or cluster_watch.refused for cluster_watch in cluster_watches):
            found += [
                Hindrance(what=f"cluster {cluster_watch.name}", why=cluster_watch.problem, since=cluster_watch.since)
                for cluster_watch in cluster_watches
            ]
        return found

    def problems(self) -> list[Hindrance]:
        """Problems of single clusters and sources while the others go on."""
        if self.watcher is None:
            return []
        away = [cluster_watch for cluster_watch in self.watcher.cluster_watches if not cluster_watch.up]
        found = [
            Hindrance(what=f"cluster {cluster_watch.name}", why=cluster_watch.problem, since=cluster_watch.since)
            for cluster_watch in away
        ]
        found += [
            Hindrance(
                what=f"cluster {cluster_watch.name}",
                why=restore_reason(cluster_watch.name, cluster_watch.restored.why),
                since=to_datetime(cluster_watch.restored.at) or cluster_watch.since,
            )
            for cluster_watch in self.watcher.cluster_watches
            if cluster_watch.restored
        ]
        found += [
            Hindrance(what=f"source {share_lease.share}", why=share_lease.current_problem, since=share_lease.since)
            for share_lease in self.watcher.share_leases
            if share_lease.current_problem
        ]
        return found

    def metrics(self) -> Iterator[Metric]:
        if self.watcher is None:
            return iter(())
        clusters = [
            ClusterStats(cluster_watch.name, cluster_watch.up, bool(cluster_watch.restored))
            for cluster_watch in self.watcher.cluster_watches
        ]
        return watch_metric_families([source_stats(share_lease) for share_lease in self.watcher.share_leases], clusters)


def source_stats(share_lease: ShareLease) -> SourceStats:
    counters = share_lease.counters
    return SourceStats(
        source=share_lease.share.source,
        share=share_lease.share.part,
        held=share_lease.held,
        problem=bool(share_lease.current_problem),
        # What another replica watches now is shown by that one.
        owned=counters.owned if share_lease.held else 0,
        listed=counters.listed,
        events=counters.events,
        published=counters.published,
        marked=counters.marked,
        relists=counters.relists,
    )
