"""Forged status of ACK's objects, through the whole service: whoever may write a status can name any ARN, and say that
it is synced. None of it leads to a call that deletes something."""

from typing import Any, Final

import pytest

from service.sources.ack import NAMESPACE_TAG
from standins.aws.builder import REGION
from tests.ack import status
from tests.api_servers import TestApi
from tests.scenarios.ack_kind_scenario import AckKindScenario, AckOf, ack_of
from tests.scenarios.ack_kinds import ACK_KINDS
from tests.scenarios.own_account import own_account

__all__ = ["ack_of", "own_account"]

pytestmark = [pytest.mark.long, pytest.mark.invariant(2), pytest.mark.invariant(11)]

OTHER: Final = "999999999999"


def said(ack: AckKindScenario, arn: str, account: str = "") -> dict[str, Any]:
    return status(arn, account=account or ack.builder.account, region=REGION)


async def nothing_was_deleted(ack: AckKindScenario) -> bool:
    asked = await ack.aws.requests(ack.kind.delete_operation)
    return not [one for one in asked if one.account == ack.builder.account]


@pytest.mark.parametrize("names_it_as_owner", [True, False])
async def test_an_arn_of_another_account_is_held(ack_of: AckOf, names_it_as_owner: bool) -> None:
    ack = ack_of(ACK_KINDS["Topic"])
    await ack.start()
    mine = await ack.resource("mine")
    arn = mine.id.replace(ack.builder.account, OTHER)
    forged = said(ack, arn, OTHER if names_it_as_owner else "")
    await ack.recorded(await ack.named("mine", mine.named.spec, forged), arn)
    await ack.delete("mine")
    why = f"its status says account {OTHER}" if names_it_as_owner else f"its ARN {arn} is of account {OTHER}"
    await ack.until_held(why)
    assert await mine.exists()
    assert await nothing_was_deleted(ack)


@pytest.mark.parametrize("has_object", [True, False])
async def test_an_arn_of_another_namespaces_resource_is_held_or_refused(
    ack_of: AckOf, api: TestApi, has_object: bool
) -> None:
    """Another object names it; or none does any more, and its tags still say whose it is."""
    ack, elsewhere = ack_of(ACK_KINDS["Topic"]), api.namespace()
    await ack.start()
    theirs = await ack.resource("theirs", elsewhere)
    if has_object:
        await ack.named("theirs", theirs.named.spec, theirs.status, namespace=elsewhere)
    await ack.seen_with("mine", theirs)
    await ack.delete("mine")
    if has_object:
        await ack.until_held(f"{ack.crd.resource} {elsewhere}/{ack.name('theirs')}", "names", "as well")
    else:
        await ack.until_job(f"is not tagged {NAMESPACE_TAG}={ack.namespace}, but {NAMESPACE_TAG}={elsewhere}")
    assert await theirs.exists()
    assert await nothing_was_deleted(ack)


async def test_an_arn_of_another_type_is_held(ack_of: AckOf) -> None:
    ack = ack_of(ACK_KINDS["Topic"])
    await ack.start()
    mine = await ack.resource("mine")
    arn = f"{mine.id.replace(':sns:', ':sqs:')}"
    await ack.recorded(await ack.named("mine", mine.named.spec, said(ack, arn)), arn)
    await ack.delete("mine")
    await ack.until_held(f"{arn} is an ARN of another type than AWS::SNS::Topic")
    assert await mine.exists()
    assert await nothing_was_deleted(ack)
