"""Opt-out of a cluster by an operator: before the object gets the finalizer, after that, and during the deletion."""

from collections.abc import Collection, Mapping
from typing import Any

import msgspec
import pytest

from service.sources.capa import EXTERNAL_RESOURCE_GC
from tests.scenarios.aws.account_contents import Holdings, assert_gone
from tests.scenarios.aws.aws_scenario import AwsScenario
from tests.scenarios.aws.cluster_resources import a_few, one_of_each

OFF = {EXTERNAL_RESOURCE_GC: "false"}


@pytest.mark.long
async def test_a_cluster_that_opted_out_before_or_after_it_was_marked_goes_and_its_resources_stay(
    scenario: AwsScenario,
) -> None:
    await scenario.start()
    never, once = await scenario.unmanaged("never", annotations=OFF), await scenario.unmanaged("once")
    for infra in (never, once):
        await a_few(scenario.builder, infra.tag, infra.vpc)
    before = await scenario.account_contents()
    await scenario.until_marked(once)
    assert scenario.finalizers(never) == []
    scenario.annotate(once, OFF)
    await scenario.until("the finalizer is off again", lambda: not scenario.marked(once))
    for infra in (never, once):
        await scenario.delete(infra)
        assert scenario.is_gone(infra), "a finalizer held it"
    # One that is collected shows that the service has come that far.
    other = await scenario.unmanaged("other")
    await scenario.until_marked(other)
    await scenario.delete(other)
    await scenario.until_released(other)
    assert_gone(before, {id_: text for id_, text in (await scenario.account_contents()).items() if id_ in before}, ())
    assert await scenario.changes() == []
    assert {view.name for view in await scenario.deletions()} <= {"other"}


async def test_a_cluster_that_opts_out_in_the_middle_keeps_what_is_left(scenario: AwsScenario) -> None:
    await scenario.start()
    infra = await scenario.unmanaged("prod")
    theirs = await one_of_each(scenario.builder, infra.tag, infra.vpc)
    classic, app, net, gwy = theirs.balancers
    await scenario.builder.protect(app)
    before = await scenario.account_contents()
    await scenario.until_marked(infra)
    await scenario.delete(infra)
    # What the protected one does not use goes on without it, down to the groups that no network balancer is in.
    gone = {classic, net, gwy, theirs.groups[0], theirs.groups[3]}
    await scenario.until_gone(*gone)
    await scenario.until_told(infra, app, "deletion protection")
    scenario.annotate(infra, OFF)
    await scenario.until_released(infra)
    # Interfaces drain after what is gone already.
    await scenario.aws.advance(60)
    assert_gone(bereft(before, gone), await scenario.account_contents(), gone)
    record = await scenario.record(infra)
    assert record is not None
    assert EXTERNAL_RESOURCE_GC in record.withdrawn


def bereft(found: Holdings, gone: Collection[str]) -> Holdings:
    """Target groups know the balancers that forward to them, and rules the groups that they refer to."""
    documents = {id_: msgspec.json.decode(text) for id_, text in found.items()}
    for document in documents.values():
        if "TargetGroupArn" in document:
            document["LoadBalancerArns"] = [one for one in document["LoadBalancerArns"] if one not in gone]
        if "Rules" in document:
            document["Rules"] = {id_: rule for id_, rule in document["Rules"].items() if _refers_to(rule) not in gone}
    return {id_: msgspec.json.encode(one, order="deterministic").decode() for id_, one in documents.items()}


def _refers_to(rule: Mapping[str, Any]) -> str:
    return str((rule.get("ReferencedGroupInfo") or {}).get("GroupId", ""))
