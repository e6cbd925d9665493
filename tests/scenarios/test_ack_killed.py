"""Worker killed at each step of a request of Cloud Control; another worker takes over and makes no second request. The
call in flight arrives after the death of its caller."""

import time
from typing import Any

import pytest

from standins.aws import AwsFault
from tests.scenarios.ack_kind_scenario import AckKindScenario, AckOf, ack_of
from tests.scenarios.ack_kinds import ACK_KINDS
from tests.scenarios.own_account import own_account
from workers.providers.aws.kinds.cloud_control import DELETE, FOLLOW, READ

__all__ = ["ack_of", "own_account"]

pytestmark = pytest.mark.long

PROOF = "proof of absence"
STEPS = {"read": READ, "request": DELETE, "status": FOLLOW, PROOF: READ}
LATE = 4.0
"""Seconds within which the worker has to be killed."""


async def requests(ack: AckKindScenario) -> list[dict[str, Any]]:
    control = await ack.builder.client("cloudcontrol")
    found: list[dict[str, Any]] = (await control.list_resource_requests())["ResourceRequestStatusSummaries"]
    return found


@pytest.mark.parametrize("step", STEPS)
async def test_a_worker_killed_at_any_step_of_a_request_leaves_it_to_the_next_which_makes_no_second(
    ack_of: AckOf, step: str
) -> None:
    ack = ack_of(ACK_KINDS["Queue"])
    ack.document["worker"] |= {"lease": "6s", "attempt_timeout": "5500ms", "plan_claim": "3s"}
    ack.document["redis"]["call_timeout"] = "2s"
    await ack.aws.behave(cloud_control_takes=3.0)
    late = AwsFault(what="slow", action=STEPS[step], account=ack.builder.account, seconds=LATE, times=1)
    first = ack.launch("work")
    await ack.start(works=False)
    mine, other = await ack.made("mine"), await ack.made("other")
    await first.until_ready()
    if step != PROOF:
        await ack.aws.set_faults(late)
    await ack.delete("mine")
    if step == PROOF:

        async def requested() -> bool:
            return bool(await requests(ack))

        await ack.until("it is requested", requested)
        await ack.aws.set_faults(late)
    await ack.until("the call is on its way", ack.aws.delayed)
    first.kill()
    died = time.time()
    second = ack.launch("work")
    await ack.until_removed(mine)
    await ack.until_done()
    await second.stop()
    (arrived,) = [one for one in await ack.aws.requests() if one.delayed and one.account == ack.builder.account]
    assert arrived.action == STEPS[step]
    assert arrived.real > died, "it was over before the worker died"
    (request,) = await requests(ack)
    assert request["Identifier"] == mine.id
    assert await other.exists()
