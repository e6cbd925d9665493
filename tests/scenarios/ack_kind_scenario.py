"""Scenario with objects of ACK of any kind, and fixture `ack_of`, which makes it for a kind: resources and objects are
created from the rows of `ack_kinds`."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from standins.aws import LocalAws
from standins.aws.builder import AwsBuilder
from tests.api_servers import TestApi
from tests.redis_servers import TestServer
from tests.scenarios.ack_kinds import AckKind, AckResource, make, own_tags
from tests.scenarios.ack_scenario import AckScenario


class AckKindScenario(AckScenario):
    """Objects of one kind in one namespace, each with its resource."""

    def __init__(
        self, api: TestApi, server: TestServer, builder: AwsBuilder, aws: LocalAws, folder: Path, kind: AckKind
    ) -> None:
        super().__init__(api, server, aws, builder, folder, kind.crd)
        self.kind = kind

    async def resource(self, suffix: str, namespace: str = "") -> AckResource:
        """One with ACK's tags, of the scenario's namespace or another."""
        tags = own_tags(self.kind, namespace or self.namespace)
        return await make(self.kind, self.aws, self.builder, self.name(suffix), tags)

    async def seen_with(self, suffix: str, resource: AckResource, **metadata: Any) -> str:
        """Creates an object of a resource, which the service then has in its inventory as synced; returns its uid."""
        uid = await self.named(suffix, resource.named.spec, resource.status, **metadata)
        await self.recorded(uid, resource.named.arn or resource.id)
        return uid

    async def made(self, suffix: str, namespace: str = "", **metadata: Any) -> AckResource:
        """A resource and its object."""
        resource = await self.resource(suffix, namespace)
        await self.seen_with(suffix, resource, **metadata)
        return resource

    async def until_removed(self, *resources: AckResource) -> None:
        async def gone() -> bool:
            return not any([await one.exists() for one in resources])

        await self.until(f"{[one.id for one in resources]} are gone", gone)


AckOf = Callable[[AckKind], AckKindScenario]


@pytest.fixture
async def ack_of(
    api: TestApi, embedded_server: TestServer, local_aws: LocalAws, own_account: AwsBuilder, tmp_path: Path
) -> AsyncIterator[AckOf]:
    """Makes the scenario of a kind; one per test. What AWS does later is done soon."""
    await local_aws.behave(database_goes=0.5, snapshot_takes=0.5, cloud_control_takes=0.5)
    made = list[AckKindScenario]()

    def make_one(kind: AckKind) -> AckKindScenario:
        made.append(AckKindScenario(api, embedded_server, own_account, local_aws, tmp_path, kind))
        return made[-1]

    try:
        yield make_one
    finally:
        for one in made:
            await one.aclose()
