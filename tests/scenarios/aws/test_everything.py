"""Deletion of a cluster with a load balancer of every kind, in an account full of similar resources of others.
With and without the tagging API, on EC2 and on EKS: all of its resources are deleted, and no others."""

from collections import Counter
from collections.abc import Iterable

import msgspec
import pytest

from standins.aws import AwsFault
from tests.scenarios.aws.account_contents import Holdings, assert_gone
from tests.scenarios.aws.aws_scenario import AwsScenario
from tests.scenarios.aws.cluster_resources import bystanders, one_of_each


@pytest.mark.parametrize(
    ("kind", "finding"),
    [
        ("unmanaged", "by the tagging API"),
        pytest.param("unmanaged", "where it is denied", marks=pytest.mark.long),
        pytest.param("managed", "by the tagging API", marks=pytest.mark.long),
        pytest.param("managed", "without it", marks=pytest.mark.long),
    ],
)
async def test_all_that_a_cluster_had_goes_and_nothing_else(scenario: AwsScenario, kind: str, finding: str) -> None:
    if finding == "without it":
        scenario.document["aws"]["finding"] = "describe"
    if finding == "where it is denied":
        await scenario.aws.set_faults(AwsFault(what="deny", action="tagging.*", account=scenario.account))
    scenario.document["aws"]["revoke_foreign_rules"] = True
    await scenario.start()
    infra = await (scenario.managed("prod") if kind == "managed" else scenario.unmanaged("prod"))
    theirs = await one_of_each(scenario.builder, infra.tag, infra.vpc)
    await bystanders(scenario.builder, infra.tag, infra.vpc)
    database = await scenario.builder.group(infra.vpc, name="database")
    backup = await scenario.builder.group(infra.vpc, name="backup")
    about_ours = await scenario.builder.rule(database, theirs.groups[0], port=5432)
    await scenario.builder.rule(database, backup, port=22)
    await scenario.builder.rule(theirs.groups[1], database)
    before = await scenario.account_contents()
    await scenario.until_marked(infra)
    await scenario.delete(infra)
    await scenario.until_released(infra)

    assert_gone(without_rule(before, database, about_ours), await scenario.account_contents(), theirs.ids)
    touched = {one for entry in await scenario.changes() for one in entry.ids}
    assert touched <= {*theirs.ids, *rules_of(before, theirs.groups), database, about_ours}, (
        "something else was touched"
    )
    assert about_ours in await scenario.audited(), "the foreign rule that was revoked can't be restored"
    asked = Counter(entry.action for entry in await scenario.asked())
    assert (asked["tagging.GetResources"] > 0) == (finding != "without it")


def without_rule(found: Holdings, group: str, rule: str) -> Holdings:
    document = msgspec.json.decode(found[group])
    del document["Rules"][rule]
    return {**found, group: msgspec.json.encode(document, order="deterministic").decode()}


def rules_of(found: Holdings, groups: Iterable[str]) -> set[str]:
    return {rule for group in groups for rule in msgspec.json.decode(found[group])["Rules"]}
