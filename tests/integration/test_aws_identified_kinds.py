"""What is peculiar to the removal of roles, policies, repositories, keys, secrets and log groups by identifier."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from service.contract import Blocked, Gone, Pending, Refused
from standins.aws import AwsFault
from standins.aws.tags import named, pairs
from tests.aws_identifier_kinds import IDENTIFIER_ROWS, POLICY, TRUST, policy, role
from tests.integration.aws_identified import OURS, IdentifiedRemovalFixture, identified
from workers.providers.aws.kinds.deletion_protection import MAX_LIFTS
from workers.providers.aws.kinds.kms_keys import KMS_KEY

__all__ = ["identified"]

ROLE, POLICIES, REPOSITORY = "aws.iam-role", "aws.iam-policy", "aws.ecr-repository"
KEY, SECRET, LOGS = "aws.kms-key", "aws.secret", "aws.log-group"

CHANGES = ("Delete", "Detach", "Schedule", "Modify", "Put")


async def client(identified: IdentifiedRemovalFixture, service: str) -> Any:
    return await identified.cloud.builder.client(service)


async def changes(identified: IdentifiedRemovalFixture) -> list[str]:
    return [one for one in await identified.asked() if one.partition(".")[2].startswith(CHANGES)]


# ---- IAM roles


async def test_a_role_goes_after_its_policies_which_stay_where_they_are_managed(
    identified: IdentifiedRemovalFixture,
) -> None:
    iam, ours = await client(identified, "iam"), await identified.make(ROLE)
    attached = [await identified.make(POLICIES) for _ in range(2)]
    for one in attached:
        await iam.attach_role_policy(RoleName=ours, PolicyArn=one)
    for number in range(2):
        await iam.put_role_policy(RoleName=ours, PolicyName=f"inline-{number}", PolicyDocument=POLICY)
    await identified.remove(*identified.targets(ROLE, ours))
    assert not await identified.exists(ROLE, ours)
    assert all([await identified.exists(POLICIES, one) for one in attached])
    assert await changes(identified) == [
        "iam.DetachRolePolicy", "iam.DetachRolePolicy", "iam.DeleteRolePolicy", "iam.DeleteRolePolicy",
        "iam.DeleteRole",
    ]  # fmt: skip


async def test_a_role_in_an_instance_profile_is_blocked_with_its_policies_attached(
    identified: IdentifiedRemovalFixture,
) -> None:
    iam, ours, profile = await client(identified, "iam"), await identified.make(ROLE), named("profile")
    await iam.attach_role_policy(RoleName=ours, PolicyArn=await identified.make(POLICIES))
    await iam.create_instance_profile(InstanceProfileName=profile)
    await iam.add_role_to_instance_profile(InstanceProfileName=profile, RoleName=ours)
    await identified.start()
    going = await identified.go(*identified.targets(ROLE, ours))
    await identified.until(going, ours, "blocked", profile)
    for operation in ("iam.DetachRolePolicy", "iam.DeleteRolePolicy"):
        assert isinstance((await identified.attempt(ROLE, ours, operation=operation))[ours], Blocked)
    assert await changes(identified) == []
    await iam.remove_role_from_instance_profile(InstanceProfileName=profile, RoleName=ours)
    await identified.engine.until_done(going)
    assert not await identified.exists(ROLE, ours)


@pytest.mark.parametrize(
    "path", ["/aws-service-role/eks.amazonaws.com/", "/aws-reserved/sso.amazonaws.com/", "/service-role/"]
)
async def test_a_role_or_policy_with_a_path_that_says_it_is_not_the_owner_s_is_refused(
    identified: IdentifiedRemovalFixture, path: str
) -> None:
    identified.set(detach_policies=True)
    build = identified.cloud.builder
    a_role, a_policy = (
        await role(build, named("role"), OURS, path=path),
        await policy(build, named("policy"), OURS, path=path),
    )
    iam = await client(identified, "iam")
    await iam.attach_role_policy(RoleName=a_role, PolicyArn=a_policy)
    await iam.put_role_policy(RoleName=a_role, PolicyName="inline", PolicyDocument=POLICY)
    lanes = {
        ROLE: (a_role, ("", "iam.DetachRolePolicy", "iam.DeleteRolePolicy")),
        POLICIES: (a_policy, ("", "iam.DetachRolePolicy", "iam.DeletePolicyVersion")),
    }
    for kind, (one, operations) in lanes.items():
        for operation in operations:
            found = (await identified.attempt(kind, one, operation=operation))[one]
            assert isinstance(found, Refused), (kind, operation)
            assert path in found.reason
    assert await changes(identified) == []


async def test_a_role_that_only_a_service_may_change_is_refused(identified: IdentifiedRemovalFixture) -> None:
    ours = await identified.make(ROLE)
    await identified.cloud.aws.set_faults(
        AwsFault(what="error", action="iam.DeleteRole", code="UnmodifiableEntity", message="linked", status=400)
    )
    assert isinstance((await identified.attempt(ROLE, ours))[ours], Refused)


# ---- IAM policies


async def attached_policy(identified: IdentifiedRemovalFixture) -> tuple[str, list[str]]:
    """A policy with an older version, and the names of a role, a user and a group that it is attached to."""
    iam, ours = await client(identified, "iam"), await identified.make(POLICIES)
    names = [named(one) for one in ("role", "user", "group")]
    await iam.create_role(RoleName=names[0], AssumeRolePolicyDocument=TRUST)
    await iam.create_user(UserName=names[1])
    await iam.create_group(GroupName=names[2])
    await iam.attach_role_policy(RoleName=names[0], PolicyArn=ours)
    await iam.attach_user_policy(UserName=names[1], PolicyArn=ours)
    await iam.attach_group_policy(GroupName=names[2], PolicyArn=ours)
    await iam.create_policy_version(PolicyArn=ours, PolicyDocument=POLICY, SetAsDefault=True)
    return ours, names


async def test_an_attached_policy_stays_and_names_what_it_is_attached_to(identified: IdentifiedRemovalFixture) -> None:
    ours, names = await attached_policy(identified)
    found = (await identified.attempt(POLICIES, ours))[ours]
    assert isinstance(found, Blocked)
    assert found.person
    assert all(one in found.by for one in (*names, "aws.detach_policies"))
    for operation in ("iam.DetachRolePolicy", "iam.DetachUserPolicy", "iam.DetachGroupPolicy"):
        back = (await identified.attempt(POLICIES, ours, operation=operation))[ours]
        assert isinstance(back, Pending)
        assert str(back.lane).endswith("iam.DeletePolicy")
    assert await changes(identified) == []


async def test_an_attached_policy_is_detached_by_setting_and_goes_with_its_versions(
    identified: IdentifiedRemovalFixture,
) -> None:
    identified.set(detach_policies=True)
    ours, names = await attached_policy(identified)
    await identified.remove(*identified.targets(POLICIES, ours))
    assert not await identified.exists(POLICIES, ours)
    assert await identified.exists(ROLE, names[0])
    assert await changes(identified) == [
        "iam.DetachRolePolicy", "iam.DetachUserPolicy", "iam.DetachGroupPolicy", "iam.DeletePolicyVersion",
        "iam.DeletePolicy",
    ]  # fmt: skip


async def test_a_policy_that_is_a_permissions_boundary_is_never_taken_away(
    identified: IdentifiedRemovalFixture,
) -> None:
    identified.set(detach_policies=True)
    iam, ours, bounded = await client(identified, "iam"), await identified.make(POLICIES), named("bounded")
    await iam.create_role(RoleName=bounded, AssumeRolePolicyDocument=TRUST, PermissionsBoundary=ours)
    await iam.create_policy_version(PolicyArn=ours, PolicyDocument=POLICY, SetAsDefault=True)
    for operation in ("", "iam.DetachRolePolicy", "iam.DeletePolicyVersion"):
        found = (await identified.attempt(POLICIES, ours, operation=operation))[ours]
        assert isinstance(found, Blocked)
        assert bounded in found.by
    assert await changes(identified) == []


async def test_a_policy_of_aws_is_refused_and_not_read(identified: IdentifiedRemovalFixture) -> None:
    arn = "arn:aws:iam::aws:policy/AdministratorAccess"
    assert isinstance((await identified.attempt(POLICIES, arn))[arn], Refused)
    assert await identified.asked() == []


# ---- ECR repositories


async def test_a_repository_with_images_stays_unless_the_setting_deletes_them(
    identified: IdentifiedRemovalFixture,
) -> None:
    ours = await identified.make(REPOSITORY, name=named("team/app"))
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
        "config": {"digest": f"sha256:{'0' * 64}", "size": 1},
        "layers": [],
    }
    ecr = await client(identified, "ecr")
    await ecr.put_image(repositoryName=ours, imageManifest=json.dumps(manifest), imageTag="v1")
    found = (await identified.attempt(REPOSITORY, ours))[ours]
    assert isinstance(found, Blocked)
    assert (found.person, "aws.delete_images" in found.by) == (True, True)
    assert await identified.exists(REPOSITORY, ours)
    identified.set(delete_images=True)
    await identified.remove(*identified.targets(REPOSITORY, ours))
    assert not await identified.exists(REPOSITORY, ours)


# ---- KMS keys and secrets


@pytest.mark.parametrize(("window", "days"), [(None, 30), (timedelta(days=7), 7), (timedelta(days=9, hours=1), 10)])
async def test_keys_and_secrets_are_scheduled_with_the_window_of_the_settings(
    identified: IdentifiedRemovalFixture, window: timedelta | None, days: int
) -> None:
    if window is not None:
        identified.set(recovery_window=window)
    key, secret = await identified.make(KEY), await identified.make(SECRET)
    await identified.remove(*identified.targets(KEY, key), *identified.targets(SECRET, secret))
    shown = await IDENTIFIER_ROWS[KEY].show(identified.cloud.builder, key)
    assert shown["KeyState"] == "PendingDeletion"
    assert round((shown["DeletionDate"] - datetime.now(UTC)) / timedelta(days=1)) == days
    shown = await IDENTIFIER_ROWS[SECRET].show(identified.cloud.builder, secret)
    assert round((shown["DeletedDate"] - datetime.now(UTC)) / timedelta(days=1)) == days
    assert await changes(identified) != []


async def test_a_key_or_secret_that_is_scheduled_already_is_gone_and_not_scheduled_again(
    identified: IdentifiedRemovalFixture,
) -> None:
    for kind in (KEY, SECRET):
        ours = await identified.make(kind)
        if kind == KEY:
            await IDENTIFIER_ROWS[KEY].remove(identified.cloud.builder, ours)
        else:
            await (await client(identified, "secretsmanager")).delete_secret(SecretId=ours, RecoveryWindowInDays=30)
        assert isinstance((await identified.attempt(kind, ours))[ours], Gone)
    assert await changes(identified) == []


async def test_a_key_of_aws_and_one_under_an_alias_are_never_scheduled(identified: IdentifiedRemovalFixture) -> None:
    kms, ours = await client(identified, "kms"), await identified.make(KEY)
    await kms.create_alias(AliasName="alias/of-a-test", TargetKeyId=ours)
    for other in ("alias/of-a-test", f"arn:aws:kms:eu-west-1:{identified.cloud.account}:key/{ours}"):
        assert isinstance((await identified.attempt(KEY, other))[other], Exception)
    # moto creates the key of a service when its alias is used; tags say nothing of such a key.
    aws = (await kms.describe_key(KeyId="alias/aws/s3"))["KeyMetadata"]
    assert aws["KeyManager"] == "AWS"
    found = (await identified.attempt(KEY, aws["KeyId"]))[aws["KeyId"]]
    assert isinstance(found, Refused)
    client_of = await identified.reach.client(identified.claim().scope)
    (read,) = (await KMS_KEY.read(client_of, [aws["KeyId"]])).values()
    assert read.facts.manager == "AWS"
    assert await changes(identified) == []


async def test_a_key_or_secret_with_replicas_is_blocked_and_names_their_regions(
    identified: IdentifiedRemovalFixture,
) -> None:
    kms, secrets = await client(identified, "kms"), await client(identified, "secretsmanager")
    made = await kms.create_key(MultiRegion=True, Tags=[{"TagKey": key, "TagValue": OURS[key]} for key in OURS])
    key = made["KeyMetadata"]["KeyId"]
    await kms.replicate_key(KeyId=key, ReplicaRegion="eu-central-1")
    secret = await secrets.create_secret(
        Name=named("secret"), SecretString="of a test", Tags=pairs(OURS),
        AddReplicaRegions=[{"Region": "eu-central-1"}],
    )  # fmt: skip
    for kind, one in ((KEY, key), (SECRET, secret["ARN"])):
        found = (await identified.attempt(kind, one))[one]
        assert isinstance(found, Blocked), (kind, found)
        assert "eu-central-1" in found.by
    assert await changes(identified) == []


async def test_a_partial_arn_of_a_secret_proves_nothing(identified: IdentifiedRemovalFixture) -> None:
    ours = await identified.make(SECRET)
    partial = ours.rpartition("-")[0]
    found = (await identified.attempt(SECRET, partial))[partial]
    assert not isinstance(found, Pending)
    assert await changes(identified) == []


# ---- log groups


async def test_a_log_group_among_others_with_its_prefix_goes_alone(identified: IdentifiedRemovalFixture) -> None:
    name = named("/aws/app")
    ours, others = await identified.make(LOGS, name=name), [f"{name}-{number}" for number in range(3)]
    for other in others:
        await identified.make(LOGS, name=other)
    await identified.remove(*identified.targets(LOGS, ours))
    assert not await identified.exists(LOGS, ours)
    assert all([await identified.exists(LOGS, other) for other in others])


async def test_a_protected_log_group_is_refused_or_lifted_by_setting(identified: IdentifiedRemovalFixture) -> None:
    """moto has no protection of log groups: the kind's own functions decide."""
    ours = await identified.make(LOGS)
    await identified.cloud.aws.behave(protected_log_groups=True)
    refused = (await identified.attempt(LOGS, ours))[ours]
    assert isinstance(refused, Refused)
    assert "aws.lift_deletion_protection" in refused.reason
    identified.set(lift_deletion_protection=True)
    await identified.remove(*identified.targets(LOGS, ours))
    assert await changes(identified) == ["logs.PutLogGroupDeletionProtection", "logs.DeleteLogGroup"]
    assert MAX_LIFTS > 1
