"""The watch side of one process: every cluster and every share under one root task group, from arrival to handing over.
A cluster or a source in trouble never stops the others; a signal hands every Lease back at once."""

import asyncio
import contextlib
import os
import random
import secrets
import signal
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from service.engine.attendance import Attendance, before_stop
from service.engine.installation import Installation
from service.engine.inventory import Inventory, end_removed
from service.engine.witnesses import Witnesses
from service.kubernetes import Sightings
from service.policy.selectors import WrongSelector, parse
from service.settings import Problem, Settings, SettingsError
from service.watching.balance import Load, Presence
from service.watching.clusters import Identities
from service.watching.collectors import check_collectors, recogniser
from service.watching.replicas import Post
from service.watching.shares import shares_of
from service.watching.site import Site

log = structlog.get_logger(__name__)

ATTENDANCE: Final = 5.0
"""Seconds between two looks at the server's epoch, when nothing gives reason for one."""


class Stopped(Exception):
    """Raised inside the root group to end the loops that go on for ever."""


class Watcher:
    def __init__(self, settings: Settings, installation: Installation, sightings: Sightings | None = None) -> None:
        """`sightings` are for a worker in the same process. Raises SettingsError where the sources can't be watched as
        they are declared."""
        check_sources(settings)
        self.settings, self.installation = settings, installation
        # A restarted container may keep its name, and must not take the Lease of its predecessor for its own.
        self.holder = f"{settings.worker.name}_{secrets.token_hex(4)}"
        self.ready = False
        self._attendance = Attendance(installation.shards)
        self._stop = asyncio.Event()
        self._doubt = asyncio.Event()
        self._presence = Presence(installation, self.holder)
        load = Load(self._presence, sum(source.shares for source in settings.sources.values()))
        posts = [
            Post(share, settings, installation, recogniser(name, source), load, self.holder, sightings)
            for name, source in settings.sources.items()
            for share in shares_of(name, source)
        ]
        # Replicas that start together try the shares in different orders, so that each gets some.
        random.shuffle(posts)
        identities, witnesses = Identities(settings, installation), Witnesses(installation)
        self.sites = [
            Site(name, settings, identities, witnesses, [post for post in posts if post.cluster == name])
            for name in settings.clusters
        ]

    @property
    def posts(self) -> list[Post]:
        found = [post for site in self.sites for post in site.posts]
        return sorted(found, key=lambda post: (post.share.source, post.share.part))

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    def stop(self) -> None:
        """Hand every Lease back, and go."""
        if not self._stop.is_set():
            log.info("watch side stopping", holder=self.holder, held=sum(post.held for post in self.posts))
        self._stop.set()

    def handle_signals(self) -> None:
        """SIGTERM and SIGINT stop; the second one ends at once."""
        on_signals([self.stop])

    async def run(self) -> None:
        """Watch until stopped."""
        if not await before_stop(self._stop, self._settle_in()):
            return
        log.info("watching", holder=self.holder, clusters=len(self.sites), shares=len(self.posts))
        with contextlib.suppress(Stopped):
            try:
                async with asyncio.TaskGroup() as root:
                    for site in self.sites:
                        root.create_task(site.run())
                    root.create_task(self._watch_server())
                    root.create_task(self._end())
                    self.ready = True
            except* Stopped:
                pass
        self.ready = False
        log.info("watch side stopped", holder=self.holder)

    async def _settle_in(self) -> None:
        await self._attendance.attend()
        for name in await end_removed(self.installation, self.settings.sources):
            log.warning("source is declared no more, what was remembered of it is not used again", source=name)

    async def _watch_server(self) -> None:
        """Where Redis may have lost writes, everything is listed anew: what is missing is then published again."""
        self.installation.caller.on_return.append(self._doubt.set)
        while True:
            if any(site.up for site in self.sites) and not all(post.problem for post in self.posts):
                await self._presence.tell()
            await self._pass_on_relists()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ATTENDANCE):
                    await self._doubt.wait()
            self._doubt.clear()
            await self._attendance.attend()

    async def _pass_on_relists(self) -> None:
        """A shard's wish becomes a wish for every source, and is crossed out when all of them have listed since."""
        caller = self.installation.caller
        for shard in self.installation.shards:
            wish = await caller.command("HGET", shard.stem + "meta", "relist")
            if wish is None:
                continue
            listed = [await self._listed_since(source, int(wish)) for source in self.settings.sources]
            if all(listed):
                log.info("everything was listed anew", shard=shard.number)
                await caller.command("HDEL", shard.stem + "meta", "relist", "relist_why")

    async def _listed_since(self, source: str, wish: int) -> bool:
        """Asks for it, where nobody has yet; another replica may have."""
        memory, declared = Inventory(self.installation, source), self.settings.sources[source]
        facts = await memory.facts()
        # Not told from the time of the last list, which is this process's clock and not the server's.
        if int(facts.get("relist", 0)) < wish:
            await memory.ask_for_relist()
            return False
        strands = [strand for share in shares_of(source, declared) for strand in share.strands(declared.namespaces)]
        fields = [f"listed_at@{strand}" if strand else "listed_at" for strand in strands]
        return all(int(facts.get(field, 0)) >= wish for field in fields)

    async def _end(self) -> None:
        await self._stop.wait()
        self.ready = False
        with contextlib.suppress(TimeoutError):
            # Only a courtesy: it is forgotten anyway, and Redis may be away.
            async with asyncio.timeout(0.5):
                await self._presence.leave()
        raise Stopped


def on_signals(stops: Sequence[Callable[[], None]]) -> None:
    """The first SIGTERM or SIGINT stops all of them, the second one ends the process at once."""
    loop = asyncio.get_running_loop()
    heard: list[signal.Signals] = []

    def hear(number: signal.Signals) -> None:
        if heard:
            log.warning("second signal, ending at once", signal=number.name)
            # Not by cancelling: what waits for a server that is away would go on waiting. Leases run out.
            os._exit(128 + number)
        heard.append(number)
        for stop in stops:
            stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, hear, number)


def check_sources(settings: Settings) -> None:
    """What only the watch side can judge. Raises SettingsError."""
    check_collectors(settings.sources)
    problems = []
    for name, source in settings.sources.items():
        for key in ("selector", "opt_in", "opt_out"):
            try:
                parse(getattr(source, key), key)
            except WrongSelector as error:
                problems.append(Problem(f"sources.{name}.{key}", str(error)))
    if problems:
        raise SettingsError(problems)
