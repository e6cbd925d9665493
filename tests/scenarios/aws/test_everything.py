"""A cluster that had a balancer of every kind is deleted, in an account that is full of things that look like its own.
With and without the tagging API, on EC2 and on EKS: all of it goes, and nothing else."""

from collections import Counter
from collections.abc import Iterable

import msgspec
import pytest

from standins.aws import Fault
from tests.scenarios.aws.belongings import bystanders, one_of_each
from tests.scenarios.aws.holdings import Holdings, assert_gone
from tests.scenarios.aws.stage import Stage


@pytest.mark.parametrize(
    ("kind", "finding"),
    [
        ("unmanaged", "by the tagging API"),
        pytest.param("unmanaged", "where it is denied", marks=pytest.mark.long),
        pytest.param("managed", "by the tagging API", marks=pytest.mark.long),
        pytest.param("managed", "without it", marks=pytest.mark.long),
    ],
)
async def test_all_that_a_cluster_had_goes_and_nothing_else(stage: Stage, kind: str, finding: str) -> None:
    if finding == "without it":
        stage.document["aws"]["finding"] = "describe"
    if finding == "where it is denied":
        await stage.aws.trouble(Fault(what="deny", action="tagging.*", account=stage.account))
    stage.document["aws"]["revoke_foreign_rules"] = True
    await stage.start()
    infra = await (stage.managed("prod") if kind == "managed" else stage.unmanaged("prod"))
    theirs = await one_of_each(stage.world, infra.tag, infra.vpc)
    await bystanders(stage.world, infra.tag, infra.vpc)
    database = await stage.world.group(infra.vpc, name="database")
    backup = await stage.world.group(infra.vpc, name="backup")
    about_ours = await stage.world.rule(database, theirs.groups[0], port=5432)
    await stage.world.rule(database, backup, port=22)
    await stage.world.rule(theirs.groups[1], database)
    before = await stage.holdings()
    await stage.until_marked(infra)
    await stage.delete(infra)
    await stage.until_released(infra)

    assert_gone(without_rule(before, database, about_ours), await stage.holdings(), theirs.ids)
    touched = {one for entry in await stage.changes() for one in entry.ids}
    assert touched <= {*theirs.ids, *rules_of(before, theirs.groups), database, about_ours}, (
        "something else was touched"
    )
    assert about_ours in await stage.audited(), "the foreign rule that was revoked can't be restored"
    asked = Counter(entry.action for entry in await stage.asked())
    assert (asked["tagging.GetResources"] > 0) == (finding != "without it")


def without_rule(found: Holdings, group: str, rule: str) -> Holdings:
    document = msgspec.json.decode(found[group])
    del document["Rules"][rule]
    return {**found, group: msgspec.json.encode(document, order="deterministic").decode()}


def rules_of(found: Holdings, groups: Iterable[str]) -> set[str]:
    return {rule for group in groups for rule in msgspec.json.decode(found[group])["Rules"]}
