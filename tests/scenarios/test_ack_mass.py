"""1,000 objects of ACK in one Namespace that is deleted: every resource is gone, or its deletion says why not."""

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Final

import pytest

from standins.aws.tags import Tags
from tests.ack import body
from tests.scenarios.ack_kind_scenario import AckKindScenario, AckOf, ack_of
from tests.scenarios.ack_kinds import ACK_KINDS, AckResource, own_tags
from tests.scenarios.ack_scenario import SOURCE
from tests.scenarios.own_account import own_account

__all__ = ["ack_of", "own_account"]

pytestmark = pytest.mark.long

OBJECTS: Final = 1000
FOREIGN: Final = 30
NEVER_SYNCED: Final = 30
AT_ONCE: Final = 16
WITHIN: Final = timedelta(minutes=15)
"""Four calls for each, of the 25 a second that are Cloud Control's, are three minutes of an idle machine."""


async def make_all(ack: AckKindScenario) -> list[AckResource]:
    """Queues and their objects: the first are tagged with another namespace, the next are not synced."""
    turns, sqs = asyncio.Semaphore(AT_ONCE), await ack.builder.client("sqs")
    own, foreign = own_tags(ack.kind, ack.namespace), own_tags(ack.kind, "elsewhere")

    async def make(number: int) -> AckResource:
        async with turns:
            name = ack.name(f"q{number}")
            tags: Tags = foreign if number < FOREIGN else own
            url = (await sqs.create_queue(QueueName=name, tags=tags))["QueueUrl"]
            made, status = AckResource(ack.kind, ack.builder, url), None
            status = dict(made.status)
            if FOREIGN <= number < FOREIGN + NEVER_SYNCED:
                status["conditions"] = []
            document = body(ack.crd, name, made.named.spec, None)
            await asyncio.to_thread(ack.kube.create, ack.path(), document)
            await asyncio.to_thread(ack.kube.patch, f"{ack.path()}/{name}/status", {"status": status})
            return made

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(make(number)) for number in range(OBJECTS)]
    return [task.result() for task in tasks]


async def queues(ack: AckKindScenario) -> set[str]:
    sqs = await ack.builder.client("sqs")
    pages = sqs.get_paginator("list_queues").paginate(PaginationConfig={"PageSize": 1000})
    return {url async for page in pages for url in page.get("QueueUrls", ())}


@pytest.mark.invariant(2)
async def test_a_thousand_objects_of_a_namespace_deleted_at_once_are_gone_or_held_with_reasons(ack_of: AckOf) -> None:
    ack = ack_of(ACK_KINDS["Queue"])
    # Events are for users, who do not read so many.
    ack.document["feedback"] = {"events": False, "conditions": False}
    ack.document["watch"]["page"] = 500
    await ack.start()
    made = await make_all(ack)

    async def recorded() -> bool:
        records = await ack.installation.caller.command("HVALS", ack.installation.keys.of(0, f"inventory:{SOURCE}"))
        return sum(b"queueURL" in record for record in records) == OBJECTS - NEVER_SYNCED

    await ack.until("all that are synced are in the inventory", recorded)
    await asyncio.to_thread(ack.kube.delete, f"/api/v1/namespaces/{ack.namespace}")
    ours = OBJECTS - FOREIGN - NEVER_SYNCED

    async def settled() -> bool:
        states = Counter(view.state for view in await ack.deletions())
        return states == {"done": ours, "running": FOREIGN, "held": NEVER_SYNCED}

    await ack.until("all deletions are done or held", settled, WITHIN)
    assert await queues(ack) == {one.id for one in made[: FOREIGN + NEVER_SYNCED]}
    reasons = Counter(job.verdict for job in await ack.every_job() if not job.ended and job.held)
    assert reasons == {"refused": FOREIGN}
    held = [view.held_why for view in await ack.deletions() if view.state == "held"]
    assert all("the inventory never saw it synced" in why for why in held)
