"""Scenario with objects of ACK of one kind: the service, an account, and ACK's part, which a test plays."""

import asyncio
import uuid
from pathlib import Path
from typing import Any, Final

from service.contract.names import FINALIZER
from service.sources.ack import ACK, CONTROLLER_TAG, NAMESPACE_TAG
from standins.aws import LocalAws
from standins.aws.builder import REGION, AwsBuilder
from tests.ack import ack_crd, body, status
from tests.api_servers import TestApi
from tests.aws import described
from tests.kube import Crd
from tests.redis_servers import TestServer
from tests.scenarios.cloud_scenario import QUICK, CloudScenario

SOURCE: Final = "objects"
"""Name of the source in the settings."""

ELASTIC_IPS: Final = ack_crd("ec2", "elasticipaddresses", "ElasticIPAddress", "status.allocationID", "status.publicIP")


class AckScenario(CloudScenario):
    """Objects in one namespace, and an account with their addresses. ACK itself does not run: a test plays its part."""

    def __init__(
        self, api: TestApi, server: TestServer, aws: LocalAws, builder: AwsBuilder, folder: Path, crd: Crd = ELASTIC_IPS
    ) -> None:
        super().__init__(api, server.settings(), folder, QUICK)
        self.kube, self.aws, self.builder, self.crd = api.kube, aws, builder, crd
        if self.kube.get(crd.own_path) is None:
            self.kube.install(crd)
        self.namespace, self.system = api.namespace(), api.namespace()
        self._prefix = f"e{uuid.uuid4().hex[:6]}"
        self.document["aws"] |= {"endpoint": aws.address, "account": builder.account}
        self.document[ACK] = {"grace": "0s", "controller_namespace": self.system}
        self.document["policy"] = {"services": {crd.group.partition(".")[0]: "delete"}}
        source = {"resource": self.crd.resource, "collector": ACK, "guard": {"enabled": False}}
        self.document["sources"] = {SOURCE: source | {"namespaces": [self.namespace]}}

    # ---- the world

    def name(self, suffix: str) -> str:
        return f"{self._prefix}-{suffix}"

    def path(self, suffix: str = "", namespace: str = "") -> str:
        return self.crd.path(namespace or self.namespace, self.name(suffix) if suffix else "")

    async def address(self, **tags: str) -> str:
        """Allocates an address with ACK's own tags, or others; returns its allocation id."""
        own = {NAMESPACE_TAG: self.namespace, CONTROLLER_TAG: "ec2-v1.4.0"}
        return await self.builder.elastic_ip(tags or own)

    async def object(
        self, suffix: str, allocation: str = "", *, synced: str = "True", account: str = "", namespace: str = "",
        **metadata: Any,
    ) -> str:  # fmt: skip
        """Creates an object that names an address; returns its uid."""
        named = {"allocationID": allocation} if allocation else {}
        said = status(account=account or self.builder.account, region=REGION, synced=synced, **named)
        return await self.named(suffix, {}, said, namespace, **metadata)

    async def named(
        self, suffix: str, spec: dict[str, Any], said: dict[str, Any], namespace: str = "", **metadata: Any
    ) -> str:
        """Creates an object with this spec and status; returns its uid."""
        document = body(self.crd, self.name(suffix), spec, None, **metadata)
        made = await asyncio.to_thread(self.kube.create, self.path(namespace=namespace), document)
        await asyncio.to_thread(self.kube.patch, f"{self.path(suffix, namespace)}/status", {"status": said})
        return str(made["metadata"]["uid"])

    async def seen(self, suffix: str, allocation: str, **changed: Any) -> str:
        """Creates an object that the service then has in its inventory as synced; returns its uid."""
        uid = await self.object(suffix, allocation, **changed)
        await self.recorded(uid, allocation)
        return uid

    async def recorded(self, uid: str, text: str, source: str = SOURCE) -> None:
        async def look() -> bool:
            key = self.installation.keys.of(0, f"inventory:{source}")
            found = await self.installation.caller.command("HGET", key, uid)
            return found is not None and text.encode() in found

        await self.until(f"{uid} is in the inventory as synced", look)

    async def delete(self, suffix: str) -> None:
        await asyncio.to_thread(self.kube.delete, self.path(suffix))

    async def read(self, suffix: str) -> Any:
        return await asyncio.to_thread(self.kube.get, self.path(suffix))

    async def patch(self, suffix: str, **metadata: Any) -> None:
        await asyncio.to_thread(self.kube.patch, self.path(suffix), {"metadata": metadata})

    async def controller(self, *args: str, name: str = "ack-ec2") -> None:
        """ACK's Deployment, with these arguments."""
        container = {"name": "controller", "image": "x/ec2-controller:1", "args": list(args)}
        labels = {"app": "ack-ec2"}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
        spec = {"selector": {"matchLabels": labels}, "template": template}
        body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}
        await asyncio.to_thread(self.kube.create, self._deployments, body)

    async def remove_controller(self, name: str) -> None:
        await asyncio.to_thread(self.kube.delete, f"{self._deployments}/{name}")

    @property
    def _deployments(self) -> str:
        return f"/apis/apps/v1/namespaces/{self.system}/deployments"

    async def there(self) -> dict[str, dict[str, str]]:
        """Tags of all addresses of the account by allocation id."""
        found = await described(self.builder.ec2, "describe_addresses", "Addresses")
        return {one["AllocationId"]: {tag["Key"]: tag["Value"] for tag in one.get("Tags", ())} for one in found}

    # ---- waiting

    async def until_gone(self, *ids: str) -> None:
        async def look() -> bool:
            return not set(ids) & set(await self.there())

        await self.until(f"{ids} are gone", look)

    async def until_done(self, number: int = 1) -> None:
        async def look() -> bool:
            return [view.state for view in await self.deletions()] == ["done"] * number

        await self.until(f"{number} deletions are done", look)

    async def until_held(self, *words: str) -> None:
        async def look() -> bool:
            return any(all(word in view.held_why for word in words) for view in await self.deletions())

        await self.until(f"a deletion is held for {words}", look)

    async def until_marked(self, suffix: str) -> None:
        async def look() -> bool:
            return FINALIZER in ((await self.read(suffix))["metadata"].get("finalizers") or ())

        await self.until(f"{suffix} has our finalizer", look)
