"""Policy of ACK's objects through the whole service: the table of level, prefix and value, and below it the setting of
the service and the controller's flag."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from service.contract.kept import RETAINED_TAG
from service.sources.ack import CONTROLLER_TAG, NAMESPACE_TAG
from standins.aws import LocalAws
from standins.aws.builder import AwsBuilder
from tests.api_servers import TestApi
from tests.redis_servers import TestServer
from tests.scenarios.ack_scenario import SOURCE, AckScenario
from tests.scenarios.own_account import own_account

__all__ = ["own_account"]

pytestmark = [pytest.mark.long, pytest.mark.invariant(7)]

PREFIXED: Final = "ec2.services.k8s.aws/deletion-policy"
PLAIN: Final = "services.k8s.aws/deletion-policy"
WORDS: Final = ("", "delete", "retain", "typo")
AT_ONCE: Final = 16


@pytest.fixture
async def ack(
    api: TestApi, embedded_server: TestServer, local_aws: LocalAws, own_account: AwsBuilder, tmp_path: Path
) -> AsyncIterator[AckScenario]:
    made = AckScenario(api, embedded_server, local_aws, own_account, tmp_path)
    try:
        yield made
    finally:
        await made.aclose()


class Case(NamedTuple):
    """The annotations of an object and of its Namespace, and what is to come of its address."""

    words: tuple[str, ...]
    namespace: str
    expected: str

    @property
    def suffix(self) -> str:
        return "-".join(word or "none" for word in self.words[:2])


def annotated(prefixed: str, plain: str) -> dict[str, str]:
    return {name: word for name, word in ((PREFIXED, prefixed), (PLAIN, plain)) if word}


def expected(words: Sequence[str], default: str) -> str:
    """The first level and prefix that says something decides; an unknown value holds."""
    first = next((word for word in words if word), default)
    return first if first in ("delete", "retain") else "hold"


async def outcomes(ack: AckScenario, addresses: dict[str, str]) -> dict[str, str]:
    """By uid of the object: delete, retain, hold, or why it is undecided. `addresses` are those of the objects."""
    there = await ack.there()
    found = dict[str, str]()
    for view in await ack.deletions():
        address = addresses.get(view.uid, "")
        match view.state:
            case "held":
                found[view.uid] = "hold" if address in there and view.held_why else "held, but gone or without a reason"
            case "done" if address not in there:
                found[view.uid] = "delete"
            case "done":
                found[view.uid] = "retain" if view.uid in there[address].get(RETAINED_TAG, "") else "not marked"
            case state:
                found[view.uid] = state
    return found


async def test_the_whole_table_of_level_prefix_and_value_decides_what_becomes_of_each_resource(
    ack: AckScenario, api: TestApi
) -> None:
    """256 objects in 16 Namespaces, deleted at once. Where nothing is annotated the controller's flag decides."""
    del ack.document["policy"]
    await ack.controller("--deletion-policy=retain")
    cases = list[Case]()
    for level in itertools.product(WORDS, repeat=2):
        namespace = api.namespace(**annotated(*level))
        for own in itertools.product(WORDS, repeat=2):
            words = (*own, *level)
            cases.append(Case(words, namespace, expected(words, "retain")))
    ack.document["sources"][SOURCE]["namespaces"] = sorted({case.namespace for case in cases})
    await ack.start()
    turns = asyncio.Semaphore(AT_ONCE)

    async def make(case: Case) -> tuple[str, str]:
        async with turns:
            address = await ack.address(**{NAMESPACE_TAG: case.namespace, CONTROLLER_TAG: "ec2-v1.4.0"})
            marks = annotated(*case.words[:2])
            uid = await ack.object(case.suffix, address, namespace=case.namespace, annotations=marks)
        return uid, address

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(make(case)) for case in cases]
    addresses = dict(task.result() for task in tasks)
    for uid, address in addresses.items():
        await ack.recorded(uid, address)

    async def delete(case: Case) -> None:
        async with turns:
            await asyncio.to_thread(ack.kube.delete, ack.path(case.suffix, case.namespace))

    async with asyncio.TaskGroup() as group:
        for case in cases:
            group.create_task(delete(case))
    wanted = {uid: case.expected for uid, case in zip(addresses, cases, strict=True)}

    async def settled() -> bool:
        return await outcomes(ack, addresses) == wanted

    try:
        await ack.until("every object has what its annotations say", settled)
    except AssertionError:
        found = await outcomes(ack, addresses)
        differing = {
            case.words: (found.get(uid), case.expected)
            for uid, case in zip(addresses, cases, strict=True)
            if found.get(uid) != case.expected
        }
        raise AssertionError(differing) from None
    assert {word: list(wanted.values()).count(word) for word in ("delete", "retain", "hold")} == {
        "delete": 85, "retain": 86, "hold": 85,
    }  # fmt: skip


FLAGS: Final[dict[str, tuple[list[list[str]], str]]] = {
    "without": ([[]], "delete"),
    "delete": ([["--deletion-policy", "delete"]], "delete"),
    "retain": ([["--deletion-policy=retain"]], "retain"),
    "none": ([], ""),
    "unknown": ([["--deletion-policy=typo"]], ""),
    "disagree": ([["--deletion-policy=retain"], ["--deletion-policy=delete"]], ""),
}
"""Arguments of the service's controllers, and the policy that they have together. Last those without one: what is held
would go by the flag of the next controller."""


@pytest.mark.parametrize("setting", ["", "delete", "retain"])
async def test_without_annotations_the_setting_of_the_service_decides_and_then_the_controllers_flag(
    ack: AckScenario, setting: str
) -> None:
    ack.document["policy"] = {"services": {"ec2": setting}} if setting else {}
    # Not that of this source: a controller may retain on purpose.
    ack.document["policy"]["deletion_policy"] = "delete"
    await ack.start()
    addresses, wanted = dict[str, str](), dict[str, str]()
    for name, (controllers, policy) in FLAGS.items():
        for number, args in enumerate(controllers):
            await ack.controller(*args, name=f"ack-ec2-{number}")
        for mark in ("", "delete", "retain"):
            address = await ack.address()
            suffix = f"{name}-{mark or 'none'}"
            uid = await ack.seen(suffix, address, annotations=annotated("", mark))
            addresses[uid], wanted[uid] = address, expected((mark, setting), policy)
            await ack.delete(suffix)

        async def settled() -> bool:
            return await outcomes(ack, addresses) == wanted

        await ack.until(f"flag {name}: {wanted}", settled)
        for number in range(len(controllers)):
            await ack.remove_controller(f"ack-ec2-{number}")
