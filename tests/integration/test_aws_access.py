"""As whom AWS is asked: a cluster's identity decides, if its namespace may use it, and the account is proven.
Identities and Secrets are on a real API server; the stand-in's journal shows what AWS heard, and from whom."""

import asyncio
from pathlib import Path

import pytest

from standins.aws import Fault, LocalAws, Role
from tests.clusters import TestApi
from tests.integration.aws_access import (
    OTHER,
    OWN,
    REGION,
    TENANT,
    Stage,
    arn,
    own_credentials,
    refusal,
    staged,
)
from workers.handlers.aws.access import Access
from workers.handlers.aws.errors import NoAccess
from workers.handlers.aws.identities import FRESH
from workers.handlers.aws.sessions import Sessions

# ---- the process's own


async def test_without_an_identity_the_process_s_own_credentials_are_used(stage: Stage) -> None:
    calls = await stage.reach.calls(stage.whose())
    assert calls.account == OWN
    assert "Vpcs" in await calls.call("ec2", "describe_vpcs", MaxResults=100)
    (asked,) = await stage.asked("ec2.DescribeVpcs")
    assert (asked.account, asked.region) == (OWN, REGION)


async def test_calls_of_other_tests_to_the_shared_stand_in_are_not_counted(stage: Stage) -> None:
    async with Sessions(stage.aws.address) as others:
        await others.call(Access("AKIA999900001111", "any"), REGION, "ec2", "describe_vpcs", {})
    assert len(await stage.aws.requests("ec2.DescribeVpcs")) > len(await stage.asked("ec2.DescribeVpcs")) == 0


async def test_who_we_are_is_asked_once_for_all_who_come_together(stage: Stage) -> None:
    await asyncio.gather(*(stage.reach.calls(stage.whose()) for _ in range(50)))
    assert len(await stage.asked()) == 1
    stage.clock.now += 301
    await stage.reach.calls(stage.whose())
    assert len(await stage.asked()) == 2


async def test_who_we_are_is_asked_again_when_the_credentials_changed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Of a file: the environment of a process never changes.
    own_credentials(monkeypatch, tmp_path, None)
    file = tmp_path / "aws-credentials"
    file.write_text(f"[default]\naws_access_key_id = AKIA{OWN}\naws_secret_access_key = one\n")
    calls = await stage.reach.calls(stage.whose())
    assert calls.account == OWN
    file.write_text(f"[default]\naws_access_key_id = AKIA{OTHER}\naws_secret_access_key = two\n")
    expired = Fault(what="error", code="InvalidClientTokenId", status=403, action="ec2.*", times=1)
    await stage.aws.trouble(expired)
    with pytest.raises(NoAccess, match="InvalidClientTokenId"):
        await calls.call("ec2", "describe_vpcs", MaxResults=100)
    # Those who were sure of the old account do not go on in the new one.
    with pytest.raises(NoAccess, match=f"in account {OWN}, but this process is of account {OTHER}"):
        await calls.call("ec2", "describe_vpcs", MaxResults=100)
    assert (await stage.reach.calls(stage.whose())).account == OTHER


async def test_a_process_without_credentials_says_what_to_do(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own_credentials(monkeypatch, tmp_path, None)
    assert "give its service account a role" in await refusal(stage)
    assert not await stage.asked()


# ---- the account


async def test_the_wrong_account_is_refused_and_both_are_named(stage: Stage) -> None:
    said = await refusal(stage, account=TENANT)
    assert OWN in said
    assert TENANT in said
    assert [one.action for one in await stage.asked()] == ["sts.GetCallerIdentity"]


async def test_the_right_account_is_taken(stage: Stage) -> None:
    assert (await stage.reach.calls(stage.whose(), account=OWN)).account == OWN


async def test_the_account_of_the_settings_binds_the_process_s_own_credentials_only(
    api: TestApi, local_aws: LocalAws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_credentials(monkeypatch, tmp_path)
    async with staged(api, local_aws, tmp_path, account=OTHER) as stage:
        assert f"aws.account says {OTHER}" in await refusal(stage)
        assert f"aws.account says {OTHER}" in await refusal(stage, stage.controller({}))
        tenant = stage.role(arn(TENANT, "r"))
        assert (await stage.reach.calls(stage.whose(tenant))).account == TENANT


async def test_people_are_told_who_we_are(stage: Stage) -> None:
    who = await stage.reach.whoami(stage.whose(stage.role(arn(TENANT, "cleaner"))))
    assert who.account == TENANT
    assert ":assumed-role/cleaner/" in who.arn


# ---- roles


async def test_a_role_is_assumed_with_its_external_id(stage: Stage) -> None:
    await stage.trusting(cleaner=Role(external_id="right", principals=(OWN,)))
    right = stage.role(arn(TENANT, "cleaner"), externalID="right", sessionName="here")
    wrong = stage.role(arn(TENANT, "cleaner"), externalID="wrong")
    calls = await stage.reach.calls(stage.whose(right))
    assert calls.account == TENANT
    await calls.call("ec2", "describe_vpcs", MaxResults=100)
    assert [one.account for one in await stage.asked("ec2.DescribeVpcs")] == [TENANT]
    said = await refusal(stage, wrong)
    assert "AccessDenied" in said
    assert "trust policy and the external id" in said
    # The tenant's name for itself, not the id.
    assert "wrong" not in said.replace(wrong, "")


async def test_identities_are_chained_from_the_last_source_to_the_first(stage: Stage) -> None:
    await stage.trusting(outer=Role(principals=(arn(TENANT, "inner"),)), inner=Role(principals=(OTHER,)))
    keys = stage.static(OTHER)
    inner = stage.role(arn(TENANT, "inner"), source=keys)
    outer = stage.role(arn(TENANT, "outer"), source=inner)
    calls = await stage.reach.calls(stage.whose(outer))
    assert calls.account == TENANT
    assert ":assumed-role/outer/" in (await stage.reach.whoami(stage.whose(outer))).arn
    first, second = await stage.asked("sts.AssumeRole")
    assert first.key == f"AKIA{OTHER}"
    assert second.account == TENANT
    # The outer role trusts nobody but the inner one.
    assert "AccessDenied" in await refusal(stage, stage.role(arn(TENANT, "outer"), source=keys))


async def test_a_role_behind_the_controller_s_identity_is_assumed_by_the_process(stage: Stage) -> None:
    await stage.trusting(cleaner=Role(principals=(OWN,)))
    source = stage.controller({"list": [stage.namespace]})
    calls = await stage.reach.calls(stage.whose(stage.role(arn(TENANT, "cleaner"), source=source)))
    assert calls.account == TENANT


async def test_a_role_is_assumed_once_for_all_and_again_before_it_ends(stage: Stage) -> None:
    whose = stage.whose(stage.role(arn(TENANT, "r"), durationSeconds=900))
    await asyncio.gather(*(stage.reach.calls(whose) for _ in range(50)))
    stage.clock.now += 700
    await stage.reach.calls(whose)
    assert len(await stage.asked("sts.AssumeRole")) == 1
    stage.clock.now += 90
    await stage.reach.calls(whose)
    assert len(await stage.asked("sts.AssumeRole")) == 2


async def test_a_changed_identity_is_assumed_anew(stage: Stage) -> None:
    identity = stage.role(arn(TENANT, "r"))
    assert (await stage.reach.calls(stage.whose(identity))).account == TENANT
    stage.change(identity, roleARN=arn(OTHER, "r"))
    stage.clock.now += FRESH.total_seconds()
    assert (await stage.reach.calls(stage.whose(identity))).account == OTHER


async def test_a_session_that_ended_early_is_replaced(stage: Stage) -> None:
    calls = await stage.reach.calls(stage.whose(stage.role(arn(TENANT, "r"))))
    await stage.aws.trouble(Fault(what="error", code="RequestExpired", action="ec2.*", times=1))
    with pytest.raises(NoAccess, match="RequestExpired"):
        await calls.call("ec2", "describe_vpcs", MaxResults=100)
    await calls.call("ec2", "describe_vpcs", MaxResults=100)
    assert len(await stage.asked("sts.AssumeRole")) == 2
    assert len({one.key for one in await stage.asked("ec2.DescribeVpcs")}) == 2


async def test_two_tenants_work_side_by_side_each_in_his_account(stage: Stage) -> None:
    tenants = [await stage.reach.calls(stage.whose(stage.role(arn(who, "r")))) for who in (TENANT, OTHER)]
    await asyncio.gather(*(calls.call("ec2", "describe_vpcs", MaxResults=100) for calls in tenants))
    assert {asked.account for asked in await stage.asked("ec2.DescribeVpcs")} == {TENANT, OTHER}


# ---- static keys


async def test_static_keys_come_from_the_secret_in_the_provider_s_namespace(stage: Stage) -> None:
    calls = await stage.reach.calls(stage.whose(stage.static(TENANT)))
    assert calls.account == TENANT


async def test_keys_that_were_replaced_are_used_from_then_on(stage: Stage) -> None:
    identity = stage.static(TENANT)
    whose = stage.whose(identity)
    assert (await stage.reach.calls(whose)).account == TENANT
    stage.change_secret(stage.spec(identity)["secretRef"], AccessKeyID=f"AKIA{OTHER}")
    stage.clock.now += FRESH.total_seconds()
    assert (await stage.reach.calls(whose)).account == OTHER


@pytest.mark.parametrize("texts", [{}, {"AccessKeyID": "AKIA1"}, {"SecretAccessKey": "s"}])
async def test_a_secret_without_keys_says_which_are_missing(stage: Stage, texts: dict[str, str]) -> None:
    identity = stage.static(TENANT)
    stage.change(identity, secretRef=stage.secret(**texts))
    assert "has no AccessKeyID or no SecretAccessKey" in await refusal(stage, identity)


async def test_a_missing_secret_is_named(stage: Stage) -> None:
    identity = stage.static(TENANT)
    stage.change(identity, secretRef="elsewhere")
    assert f"there is no Secret {stage.secrets}/elsewhere of {identity}" in await refusal(stage, identity)
