"""A person says that a cluster's resources are to stay: before the object is marked, after that, and in the middle."""

from collections.abc import Collection, Mapping
from typing import Any

import msgspec
import pytest

from service.contract.aws import EXTERNAL_RESOURCE_GC
from tests.scenarios.aws.belongings import a_few, one_of_each
from tests.scenarios.aws.holdings import Holdings, assert_gone
from tests.scenarios.aws.stage import Stage

OFF = {EXTERNAL_RESOURCE_GC: "false"}


@pytest.mark.long
async def test_a_cluster_that_opted_out_before_or_after_it_was_marked_goes_and_its_resources_stay(stage: Stage) -> None:
    await stage.start()
    never, once = await stage.unmanaged("never", annotations=OFF), await stage.unmanaged("once")
    for infra in (never, once):
        await a_few(stage.world, infra.tag, infra.vpc)
    before = await stage.holdings()
    await stage.until_marked(once)
    assert stage.finalizers(never) == []
    stage.annotate(once, OFF)
    await stage.until("the finalizer is off again", lambda: not stage.marked(once))
    for infra in (never, once):
        await stage.delete(infra)
        assert stage.is_gone(infra), "somebody held it"
    # One that is collected shows that the service has come that far.
    other = await stage.unmanaged("other")
    await stage.until_marked(other)
    await stage.delete(other)
    await stage.until_released(other)
    assert_gone(before, {id_: text for id_, text in (await stage.holdings()).items() if id_ in before}, ())
    assert await stage.changes() == []
    assert {view.name for view in await stage.deletions()} <= {"other"}


async def test_a_cluster_that_opts_out_in_the_middle_keeps_what_is_left(stage: Stage) -> None:
    await stage.start()
    infra = await stage.unmanaged("prod")
    theirs = await one_of_each(stage.world, infra.tag, infra.vpc)
    classic, app, net, gwy = theirs.balancers
    await stage.world.protect(app)
    before = await stage.holdings()
    await stage.until_marked(infra)
    await stage.delete(infra)
    # What the protected one does not use goes on without it, down to the groups that no network balancer is in.
    gone = {classic, net, gwy, theirs.groups[0], theirs.groups[3]}
    await stage.until_gone(*gone)
    await stage.until_told(infra, app, "deletion protection")
    stage.annotate(infra, OFF)
    await stage.until_released(infra)
    # Interfaces drain after what is gone already.
    await stage.aws.advance(60)
    assert_gone(bereft(before, gone), await stage.holdings(), gone)
    record = await stage.record(infra)
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
