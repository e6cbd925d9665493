"""Identities: the cluster's identity is used if its namespace may, and the account is verified. Identities and Secrets
are on a real API server; the stand-in's journal shows which calls AWS received, and from whom."""

import asyncio
from pathlib import Path

import pytest

from standins.aws import AssumableRole, AwsFault, LocalAws
from tests.api_servers import TestApi
from tests.integration.aws_identities import (
    OTHER,
    OWN,
    REGION,
    TENANT,
    AwsIdentityFixture,
    arn,
    aws_identity_fixture,
    own_credentials,
    refusal,
)
from workers.collectors.capa.identities import CACHE_TTL
from workers.providers.aws.client.credentials import AwsCredentials
from workers.providers.aws.client.sessions import SdkSessions
from workers.providers.aws.errors import NoAccess

# ---- the process's own


async def test_without_an_identity_the_process_s_own_credentials_are_used(identities: AwsIdentityFixture) -> None:
    client = await identities.reach.client(identities.whose())
    assert client.account == OWN
    assert "Vpcs" in await client.call("ec2", "describe_vpcs", MaxResults=100)
    (asked,) = await identities.asked("ec2.DescribeVpcs")
    assert (asked.account, asked.region) == (OWN, REGION)


async def test_calls_of_other_tests_to_the_shared_stand_in_are_not_counted(identities: AwsIdentityFixture) -> None:
    async with SdkSessions(identities.aws.address) as others:
        await others.call(AwsCredentials("AKIA999900001111", "any"), REGION, "ec2", "describe_vpcs", {})
    assert len(await identities.aws.requests("ec2.DescribeVpcs")) > len(await identities.asked("ec2.DescribeVpcs")) == 0


async def test_the_caller_identity_is_read_once_for_concurrent_callers(identities: AwsIdentityFixture) -> None:
    await asyncio.gather(*(identities.reach.client(identities.whose()) for _ in range(50)))
    assert len(await identities.asked()) == 1
    identities.clock.now += 301
    await identities.reach.client(identities.whose())
    assert len(await identities.asked()) == 2


async def test_the_caller_identity_is_read_again_when_the_credentials_changed(
    identities: AwsIdentityFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Of a file: the environment of a process never changes.
    own_credentials(monkeypatch, tmp_path, None)
    file = tmp_path / "aws-credentials"
    file.write_text(f"[default]\naws_access_key_id = AKIA{OWN}\naws_secret_access_key = one\n")
    client = await identities.reach.client(identities.whose())
    assert client.account == OWN
    file.write_text(f"[default]\naws_access_key_id = AKIA{OTHER}\naws_secret_access_key = two\n")
    expired = AwsFault(what="error", code="InvalidClientTokenId", status=403, action="ec2.*", times=1)
    await identities.aws.set_faults(expired)
    with pytest.raises(NoAccess, match="InvalidClientTokenId"):
        await client.call("ec2", "describe_vpcs", MaxResults=100)
    # Clients that knew the old account do not continue in the new one.
    with pytest.raises(NoAccess, match=f"in account {OWN}, but this process is of account {OTHER}"):
        await client.call("ec2", "describe_vpcs", MaxResults=100)
    assert (await identities.reach.client(identities.whose())).account == OTHER


async def test_a_process_without_credentials_says_what_to_do(
    identities: AwsIdentityFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own_credentials(monkeypatch, tmp_path, None)
    assert "give its service account a role" in await refusal(identities)
    assert not await identities.asked()


# ---- the account


async def test_the_wrong_account_is_refused_and_both_are_named(identities: AwsIdentityFixture) -> None:
    said = await refusal(identities, account=TENANT)
    assert OWN in said
    assert TENANT in said
    assert [one.action for one in await identities.asked()] == ["sts.GetCallerIdentity"]


async def test_the_right_account_is_taken(identities: AwsIdentityFixture) -> None:
    assert (await identities.reach.client(identities.whose(), account=OWN)).account == OWN


async def test_the_account_of_the_settings_binds_the_process_s_own_credentials_only(
    api: TestApi, local_aws: LocalAws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_credentials(monkeypatch, tmp_path)
    async with aws_identity_fixture(api, local_aws, tmp_path, account=OTHER) as identities:
        assert f"aws.account says {OTHER}" in await refusal(identities)
        assert f"aws.account says {OTHER}" in await refusal(identities, identities.controller({}))
        tenant = identities.role(arn(TENANT, "r"))
        assert (await identities.reach.client(identities.whose(tenant))).account == TENANT


async def test_the_caller_identity_can_be_displayed(identities: AwsIdentityFixture) -> None:
    who = await identities.reach.caller_identity(identities.whose(identities.role(arn(TENANT, "cleaner"))))
    assert who.account == TENANT
    assert ":assumed-role/cleaner/" in who.arn


# ---- roles


async def test_a_role_is_assumed_with_its_external_id(identities: AwsIdentityFixture) -> None:
    await identities.trusting(cleaner=AssumableRole(external_id="right", principals=(OWN,)))
    right = identities.role(arn(TENANT, "cleaner"), externalID="right", sessionName="here")
    wrong = identities.role(arn(TENANT, "cleaner"), externalID="wrong")
    client = await identities.reach.client(identities.whose(right))
    assert client.account == TENANT
    await client.call("ec2", "describe_vpcs", MaxResults=100)
    assert [one.account for one in await identities.asked("ec2.DescribeVpcs")] == [TENANT]
    said = await refusal(identities, wrong)
    assert "AccessDenied" in said
    assert "trust policy and the external id" in said
    # The tenant's own name, not the id.
    assert "wrong" not in said.replace(wrong, "")


async def test_identities_are_chained_from_the_last_source_to_the_first(identities: AwsIdentityFixture) -> None:
    await identities.trusting(
        outer=AssumableRole(principals=(arn(TENANT, "inner"),)), inner=AssumableRole(principals=(OTHER,))
    )
    keys = identities.static(OTHER)
    inner = identities.role(arn(TENANT, "inner"), source=keys)
    outer = identities.role(arn(TENANT, "outer"), source=inner)
    client = await identities.reach.client(identities.whose(outer))
    assert client.account == TENANT
    assert ":assumed-role/outer/" in (await identities.reach.caller_identity(identities.whose(outer))).arn
    first, second = await identities.asked("sts.AssumeRole")
    assert first.key == f"AKIA{OTHER}"
    assert second.account == TENANT
    # The outer role trusts only the inner one.
    assert "AccessDenied" in await refusal(identities, identities.role(arn(TENANT, "outer"), source=keys))


async def test_a_role_behind_the_controller_s_identity_is_assumed_by_the_process(
    identities: AwsIdentityFixture,
) -> None:
    await identities.trusting(cleaner=AssumableRole(principals=(OWN,)))
    source = identities.controller({"list": [identities.namespace]})
    client = await identities.reach.client(identities.whose(identities.role(arn(TENANT, "cleaner"), source=source)))
    assert client.account == TENANT


async def test_a_role_is_assumed_once_for_all_and_again_before_it_ends(identities: AwsIdentityFixture) -> None:
    whose = identities.whose(identities.role(arn(TENANT, "r"), durationSeconds=900))
    await asyncio.gather(*(identities.reach.client(whose) for _ in range(50)))
    identities.clock.now += 700
    await identities.reach.client(whose)
    assert len(await identities.asked("sts.AssumeRole")) == 1
    identities.clock.now += 90
    await identities.reach.client(whose)
    assert len(await identities.asked("sts.AssumeRole")) == 2


async def test_a_changed_identity_is_assumed_anew(identities: AwsIdentityFixture) -> None:
    identity = identities.role(arn(TENANT, "r"))
    assert (await identities.reach.client(identities.whose(identity))).account == TENANT
    identities.change(identity, roleARN=arn(OTHER, "r"))
    identities.clock.now += CACHE_TTL.total_seconds()
    assert (await identities.reach.client(identities.whose(identity))).account == OTHER


async def test_a_session_that_ended_early_is_replaced(identities: AwsIdentityFixture) -> None:
    client = await identities.reach.client(identities.whose(identities.role(arn(TENANT, "r"))))
    await identities.aws.set_faults(AwsFault(what="error", code="RequestExpired", action="ec2.*", times=1))
    with pytest.raises(NoAccess, match="RequestExpired"):
        await client.call("ec2", "describe_vpcs", MaxResults=100)
    await client.call("ec2", "describe_vpcs", MaxResults=100)
    assert len(await identities.asked("sts.AssumeRole")) == 2
    assert len({one.key for one in await identities.asked("ec2.DescribeVpcs")}) == 2


async def test_two_tenants_work_side_by_side_each_in_its_own_account(identities: AwsIdentityFixture) -> None:
    tenants = [
        await identities.reach.client(identities.whose(identities.role(arn(who, "r")))) for who in (TENANT, OTHER)
    ]
    await asyncio.gather(*(client.call("ec2", "describe_vpcs", MaxResults=100) for client in tenants))
    assert {asked.account for asked in await identities.asked("ec2.DescribeVpcs")} == {TENANT, OTHER}


# ---- static keys


async def test_static_keys_come_from_the_secret_in_the_provider_s_namespace(identities: AwsIdentityFixture) -> None:
    client = await identities.reach.client(identities.whose(identities.static(TENANT)))
    assert client.account == TENANT


async def test_keys_that_were_replaced_are_used_from_then_on(identities: AwsIdentityFixture) -> None:
    identity = identities.static(TENANT)
    whose = identities.whose(identity)
    assert (await identities.reach.client(whose)).account == TENANT
    identities.change_secret(identities.spec(identity)["secretRef"], AccessKeyID=f"AKIA{OTHER}")
    identities.clock.now += CACHE_TTL.total_seconds()
    assert (await identities.reach.client(whose)).account == OTHER


@pytest.mark.parametrize("texts", [{}, {"AccessKeyID": "AKIA1"}, {"SecretAccessKey": "s"}])
async def test_a_secret_without_keys_says_which_are_missing(
    identities: AwsIdentityFixture, texts: dict[str, str]
) -> None:
    identity = identities.static(TENANT)
    identities.change(identity, secretRef=identities.secret(**texts))
    assert "has no AccessKeyID or no SecretAccessKey" in await refusal(identities, identity)


async def test_a_missing_secret_is_named(identities: AwsIdentityFixture) -> None:
    identity = identities.static(TENANT)
    identities.change(identity, secretRef="elsewhere")
    assert f"there is no Secret {identities.secrets}/elsewhere of {identity}" in await refusal(identities, identity)
