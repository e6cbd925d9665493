"""Namespaces and identities: no tenant can use another's account, and withdrawn permission ends soon. A refused
identity causes no AWS call at all; the stand-in's journal shows it."""

import logging
from datetime import timedelta

import pytest

from standins.aws import AssumableRole, AwsFault
from tests.integration.aws_identities import (
    OTHER,
    OWN,
    REGION,
    TENANT,
    AwsIdentityFixture,
    arn,
    refusal,
)
from workers.collectors.capa.identities import CACHE_TTL
from workers.providers.aws.client.clients import IDENTITY_TTL
from workers.providers.aws.errors import NoAccess
from workers.providers.aws.model import CallScope

WITHDRAWN = timedelta(seconds=30)
"""How soon a withdrawn identity stops working."""


# ---- allowed namespaces


@pytest.mark.invariant(11)
@pytest.mark.parametrize("allowed", [{"list": ["team-b"]}, {"list": []}, {"selector": {"matchLabels": {"team": "b"}}}])
async def test_a_tenant_in_a_namespace_that_is_not_allowed_gets_nothing(
    identities: AwsIdentityFixture, allowed: object
) -> None:
    for identity in (
        identities.role(arn(TENANT, "r"), allowed=allowed),
        identities.static(TENANT, allowed=allowed),
        identities.controller(allowed),
    ):
        assert f"{identity} may not be used from namespace {identities.namespace}" in await refusal(
            identities, identity
        )
    assert not await identities.asked()


async def test_an_identity_that_allows_no_namespace_gives_no_access(identities: AwsIdentityFixture) -> None:
    identity = identities.role(arn(TENANT, "r"))
    identities.change(identity, allowedNamespaces=None)
    assert "may not be used from namespace" in await refusal(identities, identity)
    assert not await identities.asked()


async def test_every_identity_of_a_chain_must_allow_the_namespace(identities: AwsIdentityFixture) -> None:
    closed = identities.static(OTHER, allowed={"list": ["team-b"]})
    identity = identities.role(arn(TENANT, "r"), source=closed)
    assert f"{closed} may not be used from namespace" in await refusal(identities, identity)
    assert not await identities.asked()


async def test_a_namespace_is_chosen_by_its_labels(identities: AwsIdentityFixture) -> None:
    identity = identities.role(arn(TENANT, "r"), allowed={"selector": {"matchLabels": {"team": "a"}}})
    assert "may not be used" in await refusal(identities, identity)
    identities.label(team="a")
    identities.clock.now += CACHE_TTL.total_seconds()
    assert (await identities.reach.client(identities.whose(identity))).account == TENANT


async def test_an_identity_that_is_open_to_all_serves_this_namespace_too(identities: AwsIdentityFixture) -> None:
    assert (await identities.reach.client(identities.whose(identities.controller({})))).account == OWN


async def test_an_identity_that_is_withdrawn_stops_in_the_middle_of_the_work(identities: AwsIdentityFixture) -> None:
    identity = identities.role(arn(TENANT, "r"))
    client = await identities.reach.client(identities.whose(identity))
    await client.call("ec2", "describe_vpcs", MaxResults=100)
    identities.change(identity, allowedNamespaces={"list": ["team-b"]})
    assert IDENTITY_TTL + CACHE_TTL < WITHDRAWN
    identities.clock.now += (IDENTITY_TTL + CACHE_TTL).total_seconds()
    with pytest.raises(NoAccess, match="may not be used"):
        await client.call("ec2", "describe_vpcs", MaxResults=100)
    assert len(await identities.asked("ec2.DescribeVpcs")) == 1


async def test_a_label_that_is_taken_away_stops_the_work(identities: AwsIdentityFixture) -> None:
    identities.label(team="a")
    identity = identities.static(TENANT, allowed={"selector": {"matchLabels": {"team": "a"}}})
    client = await identities.reach.client(identities.whose(identity))
    identities.label(team=None)
    identities.clock.now += (IDENTITY_TTL + CACHE_TTL).total_seconds()
    with pytest.raises(NoAccess, match="may not be used"):
        await client.call("ec2", "describe_vpcs", MaxResults=100)


# ---- invalid identities


async def test_a_missing_identity_is_named(identities: AwsIdentityFixture) -> None:
    assert "there is no AWSClusterRoleIdentity/nowhere in cluster local" in await refusal(
        identities, "AWSClusterRoleIdentity/nowhere"
    )


async def test_an_identity_of_a_source_without_a_cluster_is_refused(identities: AwsIdentityFixture) -> None:
    whose = CallScope(source="gone", namespace="n", region=REGION, identity="AWSClusterRoleIdentity/x")
    with pytest.raises(NoAccess, match="no way to the cluster of source gone"):
        await identities.reach.client(whose)


async def test_identities_that_refer_to_each_other_are_refused(identities: AwsIdentityFixture) -> None:
    one = identities.role(arn(TENANT, "a"))
    two = identities.role(arn(TENANT, "b"), source=one)
    kind, _, name = two.partition("/")
    identities.change(one, sourceIdentityRef={"kind": kind, "name": name})
    assert f"in a circle: {two} -> {one} -> {two}" in await refusal(identities, two)
    assert not await identities.asked()


async def test_a_chain_without_an_end_in_sight_is_refused(identities: AwsIdentityFixture) -> None:
    identity = ""
    for number in range(9):
        identity = identities.role(arn(TENANT, f"r{number}"), source=identity)
    assert "one behind the other" in await refusal(identities, identity)
    assert not await identities.asked()


async def test_an_api_server_that_gives_no_answer_is_no_permission(identities: AwsIdentityFixture) -> None:
    await identities.cluster.aclose()
    assert "can't be read" in await refusal(identities, "AWSClusterRoleIdentity/any")
    assert not await identities.asked()


# ---- partitions


async def test_a_role_in_china_is_assumed_in_china(identities: AwsIdentityFixture) -> None:
    identity = identities.role(arn(TENANT, "r", "aws-cn"))
    client = await identities.reach.client(identities.whose(identity, "cn-north-1"))
    assert client.account == TENANT
    assert (await identities.reach.caller_identity(identities.whose(identity, "cn-north-1"))).arn.startswith(
        "arn:aws-cn:sts::"
    )
    assert {one.region for one in await identities.asked()} == {"cn-north-1"}


async def test_a_role_of_another_partition_is_refused_before_any_call(identities: AwsIdentityFixture) -> None:
    identity = identities.role(arn(TENANT, "r"))
    with pytest.raises(NoAccess, match="is in partition aws-us-gov, but"):
        await identities.reach.client(identities.whose(identity, "us-gov-west-1"))
    assert not await identities.asked()


@pytest.mark.parametrize("region", ["mars-north-1", "", "x.evil.example/"])
async def test_a_region_that_is_none_is_refused(identities: AwsIdentityFixture, region: str) -> None:
    with pytest.raises(NoAccess, match="no region of AWS"):
        await identities.reach.client(identities.whose("", region))


# ---- secrets


@pytest.mark.invariant(12)
async def test_no_secret_gets_into_logs_or_errors(
    identities: AwsIdentityFixture, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    await identities.trusting(cleaner=AssumableRole(external_id="the-external-id", principals=(OTHER,)))
    identity = identities.role(arn(TENANT, "cleaner"), source=identities.static(OTHER), externalID="the-external-id")
    whose = identities.whose(identity)
    client = await identities.reach.client(whose)
    credentials, _ = await identities.reach.authenticate(whose, "")
    await client.call("ec2", "describe_vpcs", MaxResults=100)
    await identities.aws.set_faults(AwsFault(what="deny"))
    errors = [await refusal(identities, identities.role(arn(TENANT, "cleaner"), externalID="the-external-id"))]
    with pytest.raises(Exception, match="UnauthorizedOperation") as denied:
        await client.call("ec2", "describe_vpcs", MaxResults=100)
    errors += [str(denied.value), repr(denied.value), repr(credentials), repr(client)]
    shown = caplog.text + "".join(errors)
    for secret in (credentials.secret, credentials.token, "static-secret", "own-secret", "the-external-id"):
        assert secret
        assert secret not in shown
