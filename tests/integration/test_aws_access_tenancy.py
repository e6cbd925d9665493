"""Who may use an identity: no tenant borrows another's account, and nobody keeps what was taken back from him.
Where the answer is no, or none, AWS hears nothing at all; the stand-in's journal shows it."""

import logging
from datetime import timedelta

import pytest

from standins.aws import Fault, Role
from tests.integration.aws_access import (
    OTHER,
    OWN,
    REGION,
    TENANT,
    Stage,
    arn,
    refusal,
)
from workers.handlers.aws.errors import NoAccess
from workers.handlers.aws.identities import FRESH
from workers.handlers.aws.model import Whose
from workers.handlers.aws.reach import TRUSTED

WITHDRAWN = timedelta(seconds=30)
"""Within so long an identity that is taken back stops working."""


# ---- whose namespace


@pytest.mark.invariant(11)
@pytest.mark.parametrize("allowed", [{"list": ["team-b"]}, {"list": []}, {"selector": {"matchLabels": {"team": "b"}}}])
async def test_a_tenant_in_a_namespace_that_is_not_allowed_gets_nothing(stage: Stage, allowed: object) -> None:
    for identity in (
        stage.role(arn(TENANT, "r"), allowed=allowed),
        stage.static(TENANT, allowed=allowed),
        stage.controller(allowed),
    ):
        assert f"{identity} may not be used from namespace {stage.namespace}" in await refusal(stage, identity)
    assert not await stage.asked()


async def test_an_identity_that_allows_no_namespace_serves_nobody(stage: Stage) -> None:
    identity = stage.role(arn(TENANT, "r"))
    stage.change(identity, allowedNamespaces=None)
    assert "may not be used from namespace" in await refusal(stage, identity)
    assert not await stage.asked()


async def test_every_identity_of_a_chain_must_allow_the_namespace(stage: Stage) -> None:
    closed = stage.static(OTHER, allowed={"list": ["team-b"]})
    identity = stage.role(arn(TENANT, "r"), source=closed)
    assert f"{closed} may not be used from namespace" in await refusal(stage, identity)
    assert not await stage.asked()


async def test_a_namespace_is_chosen_by_its_labels(stage: Stage) -> None:
    identity = stage.role(arn(TENANT, "r"), allowed={"selector": {"matchLabels": {"team": "a"}}})
    assert "may not be used" in await refusal(stage, identity)
    stage.label(team="a")
    stage.clock.now += FRESH.total_seconds()
    assert (await stage.reach.calls(stage.whose(identity))).account == TENANT


async def test_an_identity_that_is_open_to_all_serves_this_namespace_too(stage: Stage) -> None:
    assert (await stage.reach.calls(stage.whose(stage.controller({})))).account == OWN


async def test_an_identity_that_is_withdrawn_stops_in_the_middle_of_the_work(stage: Stage) -> None:
    identity = stage.role(arn(TENANT, "r"))
    calls = await stage.reach.calls(stage.whose(identity))
    await calls.call("ec2", "describe_vpcs", MaxResults=100)
    stage.change(identity, allowedNamespaces={"list": ["team-b"]})
    assert TRUSTED + FRESH < WITHDRAWN
    stage.clock.now += (TRUSTED + FRESH).total_seconds()
    with pytest.raises(NoAccess, match="may not be used"):
        await calls.call("ec2", "describe_vpcs", MaxResults=100)
    assert len(await stage.asked("ec2.DescribeVpcs")) == 1


async def test_a_label_that_is_taken_away_stops_the_work(stage: Stage) -> None:
    stage.label(team="a")
    identity = stage.static(TENANT, allowed={"selector": {"matchLabels": {"team": "a"}}})
    calls = await stage.reach.calls(stage.whose(identity))
    stage.label(team=None)
    stage.clock.now += (TRUSTED + FRESH).total_seconds()
    with pytest.raises(NoAccess, match="may not be used"):
        await calls.call("ec2", "describe_vpcs", MaxResults=100)


# ---- what is wrong with it


async def test_a_missing_identity_is_named(stage: Stage) -> None:
    assert "there is no AWSClusterRoleIdentity/nowhere in cluster local" in await refusal(
        stage, "AWSClusterRoleIdentity/nowhere"
    )


async def test_an_identity_of_a_source_without_a_cluster_is_refused(stage: Stage) -> None:
    whose = Whose(source="gone", namespace="n", region=REGION, identity="AWSClusterRoleIdentity/x")
    with pytest.raises(NoAccess, match="no way to the cluster of source gone"):
        await stage.reach.calls(whose)


async def test_identities_that_refer_to_each_other_are_refused(stage: Stage) -> None:
    one = stage.role(arn(TENANT, "a"))
    two = stage.role(arn(TENANT, "b"), source=one)
    kind, _, name = two.partition("/")
    stage.change(one, sourceIdentityRef={"kind": kind, "name": name})
    assert f"in a circle: {two} -> {one} -> {two}" in await refusal(stage, two)
    assert not await stage.asked()


async def test_a_chain_without_an_end_in_sight_is_refused(stage: Stage) -> None:
    identity = ""
    for number in range(9):
        identity = stage.role(arn(TENANT, f"r{number}"), source=identity)
    assert "one behind the other" in await refusal(stage, identity)
    assert not await stage.asked()


async def test_an_api_server_that_gives_no_answer_is_no_permission(stage: Stage) -> None:
    await stage.cluster.aclose()
    assert "can't be read" in await refusal(stage, "AWSClusterRoleIdentity/any")
    assert not await stage.asked()


# ---- partitions


async def test_a_role_in_china_is_assumed_in_china(stage: Stage) -> None:
    identity = stage.role(arn(TENANT, "r", "aws-cn"))
    calls = await stage.reach.calls(stage.whose(identity, "cn-north-1"))
    assert calls.account == TENANT
    assert (await stage.reach.whoami(stage.whose(identity, "cn-north-1"))).arn.startswith("arn:aws-cn:sts::")
    assert {one.region for one in await stage.asked()} == {"cn-north-1"}


async def test_a_role_of_another_partition_is_refused_before_anybody_is_asked(stage: Stage) -> None:
    identity = stage.role(arn(TENANT, "r"))
    with pytest.raises(NoAccess, match="is in partition aws-us-gov, but"):
        await stage.reach.calls(stage.whose(identity, "us-gov-west-1"))
    assert not await stage.asked()


@pytest.mark.parametrize("region", ["mars-north-1", "", "x.evil.example/"])
async def test_a_region_that_is_none_is_refused(stage: Stage, region: str) -> None:
    with pytest.raises(NoAccess, match="no region of AWS"):
        await stage.reach.calls(stage.whose("", region))


# ---- secrets


@pytest.mark.invariant(12)
async def test_no_secret_gets_into_logs_or_errors(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    await stage.trusting(cleaner=Role(external_id="the-external-id", principals=(OTHER,)))
    identity = stage.role(arn(TENANT, "cleaner"), source=stage.static(OTHER), externalID="the-external-id")
    whose = stage.whose(identity)
    calls = await stage.reach.calls(whose)
    access = await stage.reach.identities.access(whose)
    await calls.call("ec2", "describe_vpcs", MaxResults=100)
    await stage.aws.trouble(Fault(what="deny"))
    errors = [await refusal(stage, stage.role(arn(TENANT, "cleaner"), externalID="the-external-id"))]
    with pytest.raises(Exception, match="UnauthorizedOperation") as denied:
        await calls.call("ec2", "describe_vpcs", MaxResults=100)
    errors += [str(denied.value), repr(denied.value), repr(access), repr(calls)]
    shown = caplog.text + "".join(errors)
    for secret in (access.secret, access.token, "static-secret", "own-secret", "the-external-id"):
        assert secret
        assert secret not in shown
