"""Steps of the canary scenario: first everything works, then two jobs are refused, then every server and program that
gives or takes credentials fails and repeats what it knows."""

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator
from functools import partial

from service.engine.views.jobs import list_jobs
from standins.aws.tags import by_cloud_provider
from standins.azure import GROUP, Nic, id_of
from tests.scenarios.canaries.canary_setup import MADE, NODE, CanarySetup
from tests.scenarios.canaries.kubeconfigs import PROGRAMS, WORKING


async def works(scene: CanarySetup) -> None:
    """An object of each cluster and a cluster of each identity are deleted."""
    for way in WORKING:
        await asyncio.to_thread(scene.make, way, "first")
    for way in WORKING:
        await scene.until(f"{way}: first is marked", partial(scene.is_marked, way, "first"))
        await asyncio.to_thread(scene.remove, way, "first")
    for way in WORKING:
        await scene.until(f"{way}: first is released", partial(scene.is_absent, way, "first"))
    for name, identity in scene.identities().items():
        vpc = await scene.builder.vpc()
        if not identity:
            await scene.builder.balancer(vpc, by_cloud_provider(name, "default/web"), of="net")
        infra = await scene.unmanaged(name, vpc, identity=identity or None)
        await scene.until_marked(infra)
        await scene.delete(infra)
        if not identity:
            await scene.until_released(infra)
        else:
            # Its VPC is not in the tenant's account.
            await scene.until_told(infra, "account")


async def protects(scene: CanarySetup) -> None:
    """Knell makes a key for its webhook, which is in a Secret from then on."""
    path = f"/api/v1/namespaces/default/secrets/{MADE}"
    made = await scene.until("the webhook has a key", lambda: scene.kube.get(path))
    scene.known.take_key("webhook key", base64.b64decode(made["data"]["tls.key"]).decode())


async def stuck(scene: CanarySetup) -> None:
    """A job on each cloud that is refused, and tried again and again."""
    vpc = await scene.builder.vpc()
    balancer = await scene.builder.balancer(vpc, by_cloud_provider("stuck", "default/web"), of="net")
    await scene.builder.protect(balancer)
    infra = await scene.unmanaged("stuck", vpc)
    await scene.until_marked(infra)
    await scene.delete(infra)
    name = f"aks-{scene.karpenter.name('locked')}"
    await scene.azure.behave(locks=(id_of(scene.karpenter.subscription, GROUP, "nic", name),))
    await scene.azure.make(Nic(name=name, tags=NODE, subscription=scene.karpenter.subscription))
    await until_jobs_say(scene, "protect", "ScopeLocked")


async def until_jobs_say(scene: CanarySetup, *words: str) -> None:
    async def said() -> bool:
        reasons = [job.reason for job in (await list_jobs(scene.installation)).jobs]
        return all(any(word in reason for reason in reasons) for word in words)

    await scene.until(f"jobs say {words}", said)


async def fails(scene: CanarySetup) -> None:
    """Every server answers with what it was sent."""
    # First the clouds alone: what they say gets into jobs, Events and conditions.
    for status in (400, 500):
        vpc = await scene.builder.vpc()
        infra = await scene.unmanaged(f"late-{status}", vpc)
        await scene.until_marked(infra)
        async with answering(scene, status, "aws", "azure"):
            await scene.delete(infra)
            if status == 400:
                await until_jobs_say(scene, "ValidationError", "InternalServerError")
        await scene.until_told(infra, "CleanupHeld")
    # What is refused for good is not asked again and again, which would only take time.
    async with answering(scene, 401, "aws", "azure"):
        pass
    # After a 401 credentials are read or issued anew; those who issue them fail first.
    scene.ways.breaks()
    async with answering(scene, 400, "issuer"), answering(scene, 401, *WORKING):
        await scene.until("programs have failed", lambda: scene.ways.failed() >= set(PROGRAMS))
    scene.ways.mended()
    quiet(scene, "issuer")
    for status in (401, 500):
        async with answering(scene, status, *WORKING):
            pass


@contextlib.asynccontextmanager
async def answering(scene: CanarySetup, status: int, *names: str) -> AsyncIterator[None]:
    """These gateways repeat what they are sent from now on; it ends when each has done so."""
    for name in names:
        scene.gateways[name].echo, scene.gateways[name].echoed = status, 0
    yield
    for name in names:
        await scene.until(f"{name} has answered {status}", partial(getattr, scene.gateways[name], "echoed"))


def quiet(scene: CanarySetup, *names: str) -> None:
    """These gateways pass requests on again; all of them where none is named."""
    for name in names or scene.gateways:
        scene.gateways[name].echo = 0
