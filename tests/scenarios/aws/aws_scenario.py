"""Scenario with clusters on AWS: a namespace of a management cluster, an account, and the service between them.
The effects of the service are read from the objects, its records, and the account and its journal."""

import contextlib
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from service.engine.views.deletions import DeletionView, one_deletion
from service.settings import RedisSettings
from service.sources.capa import CAPA, TASKS
from standins.aws import AwsBehaviour, AwsJournalEntry, LocalAws
from standins.aws.builder import REGION, AwsBuilder
from tests.api_servers import TestApi
from tests.capi import AWS_CLUSTERS, AWS_MANAGED_CONTROL_PLANES, clear
from tests.kube import Crd
from tests.scenarios.aws.account_contents import Holdings, account_contents
from tests.scenarios.aws.capi_clusters import CapiClusters, Infra
from tests.scenarios.cloud_scenario import PATIENCE, CloudScenario

RATE: Final = 10.0
"""Seconds of the stand-in in one of ours: interfaces that drain for five seconds are gone in half a second."""
SOURCES: Final = {"unmanaged": AWS_CLUSTERS, "managed": AWS_MANAGED_CONTROL_PLANES}
QUICK: Final[dict[str, Any]] = {
    "features": {"ExternalResourceGC": True},
    # Stories compare tags before and after; those about marks switch them on.
    "aws": {
        "allowed_tasks": list(TASKS), "settle": "300ms", "check_after": "100ms", "drain_check": "200ms",
        "mark_retained": False,
    },
    "watch": {"page": 100, "retry": "300ms"},
    "worker": {"grace": "5s"},
    "retry": {
        "base": "50ms", "cap": "1s", "refused_recheck": "300ms", "blocked_base": "100ms", "blocked_cap": "300ms",
    },
    "log": {"level": "info", "format": "json"},
}  # fmt: skip
_READS: Final = ("Describe", "Get", "List", "AssumeRole")


class AwsScenario(CapiClusters, CloudScenario):
    """`document` are the settings, as their file has them; a test changes them before it starts something."""

    def __init__(self, api: TestApi, redis: RedisSettings, aws: LocalAws, builder: AwsBuilder, folder: Path) -> None:
        CapiClusters.__init__(self, api.kube, api.namespace(), builder)
        clear(api.kube)
        CloudScenario.__init__(self, api, redis, folder, QUICK)
        self.aws, self.account = aws, builder.account
        self._since = 0
        self.document["aws"]["endpoint"] = aws.address
        self.document["sources"] = {name: self.source(crd) for name, crd in SOURCES.items()}

    def source(self, crd: Crd, **changes: Any) -> dict[str, Any]:
        given = {"resource": crd.resource, "collector": CAPA, "cluster": "here", "namespaces": [self.namespace]}
        return {**given, "guard": {"enabled": False}, **changes}

    async def begin(self) -> None:
        await self.aws.behave(**msgspec.to_builtins(AwsBehaviour()))
        await self.aws.set_rate(RATE)
        self._since = len(await self.aws.journal())

    # ---- what came of it

    async def record(self, infra: Infra) -> DeletionView | None:
        cluster: Any = self.kube.get("/api/v1/namespaces/kube-system")
        return await one_deletion(
            self.installation, f"{cluster['metadata']['uid']}/{infra.crd.resource}/{infra.uid}/1"
        )  # fmt: skip

    async def asked(self, action: str = "") -> Sequence[AwsJournalEntry]:
        """What AWS was asked in this test's account by others than the builder."""
        return [one for one in await self.aws.requests(action, self._since) if one.account == self.account]

    async def changes(self) -> Sequence[AwsJournalEntry]:
        """Those among them that were to change something, whatever came of it."""
        return [one for one in await self.asked() if not one.action.partition(".")[2].startswith(_READS)]

    async def account_contents(self) -> Holdings:
        return await account_contents(self.builder)

    # ---- waiting

    async def until_marked(self, *infras: Infra) -> None:
        for infra in infras:
            await self.until(f"{infra.name} is marked", partial(self.marked, infra))

    async def until_released(self, *infras: Infra, within: timedelta = PATIENCE) -> None:
        """Gone from the cluster, and their deletions done."""
        for infra in infras:
            await self.until(f"{infra.name} is gone", partial(self.is_gone, infra), within)
            await self.until(f"{infra.name} is recorded as done", partial(self._is_done, infra))

    async def _is_done(self, infra: Infra) -> bool:
        record = await self.record(infra)
        return record is not None and record.state == "done"

    async def until_told(self, infra: Infra, *words: str) -> str:
        """What the object says, once it says all of this."""

        def look() -> str:
            said = self.told(infra)
            return said if all(word in said for word in words) else ""

        return str(await self.until(f"{infra.name} says {words}", look))

    async def until_gone(self, *ids: str) -> None:
        async def look() -> bool:
            return not set(ids) & await self.builder.standing()

        await self.until(f"{ids} are gone from the account", look)


@contextlib.asynccontextmanager
async def opened(
    api: TestApi, redis: RedisSettings, aws: LocalAws, account: str, folder: Path
) -> AsyncIterator[AwsScenario]:  # fmt: skip
    async with AwsBuilder(aws.address, account=account, region=REGION) as builder:
        stage = AwsScenario(api, redis, aws, builder, folder)
        try:
            await stage.begin()
            yield stage
        finally:
            await stage.aclose()
