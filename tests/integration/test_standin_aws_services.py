"""S3, RDS, IAM, KMS and CloudWatch Logs in the stand-in for AWS, where it does what AWS does and moto does not."""

from collections.abc import Awaitable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from standins.aws.builder import REGION
from standins.aws.tags import named
from tests.aws import AwsTestAccount
from tests.aws_identifier_kinds import IDENTIFIER_ROWS, POLICY, TRUST

pytestmark = pytest.mark.long


async def make(cloud: AwsTestAccount, kind: str) -> str:
    return await IDENTIFIER_ROWS[kind].create(cloud.builder, named("of-a-test"), {})


async def refused(call: Awaitable[Any]) -> tuple[str, int]:
    """Code and status."""
    with pytest.raises(ClientError) as raised:
        await call
    answer = raised.value.response
    return str(answer["Error"]["Code"]), int(answer["ResponseMetadata"]["HTTPStatusCode"])


async def test_a_bucket_is_its_accounts_alone_and_is_reached_in_its_region(cloud: AwsTestAccount) -> None:
    bucket = await make(cloud, "aws.s3-bucket")
    s3, foreign = await cloud.client("s3"), await cloud.client("s3", account="999900001111")
    elsewhere = await cloud.client("s3", region="us-east-1")
    assert await refused(foreign.get_bucket_location(Bucket=bucket)) == ("AccessDenied", 403)
    assert await refused(s3.list_object_versions(Bucket=bucket, ExpectedBucketOwner="999900001111")) == (
        "AccessDenied",
        403,
    )
    assert (await elsewhere.get_bucket_location(Bucket=bucket))["LocationConstraint"] == REGION
    # The SDK follows the redirection.
    await elsewhere.list_object_versions(Bucket=bucket)
    assert (301, "PermanentRedirect") in await cloud.requests("s3.ListObjectVersions")


async def test_a_bucket_with_open_uploads_is_not_empty_and_lists_them_in_pages(cloud: AwsTestAccount) -> None:
    bucket, s3 = await make(cloud, "aws.s3-bucket"), await cloud.client("s3")
    for number in range(3):
        await s3.create_multipart_upload(Bucket=bucket, Key=f"upload {number}")
    assert await refused(s3.delete_bucket(Bucket=bucket)) == ("BucketNotEmpty", 409)
    page = await s3.list_multipart_uploads(Bucket=bucket, MaxUploads=2)
    assert ([one["Key"] for one in page["Uploads"]], page["IsTruncated"]) == (["upload 0", "upload 1"], True)
    for one in (await s3.list_multipart_uploads(Bucket=bucket))["Uploads"]:
        await s3.abort_multipart_upload(Bucket=bucket, Key=one["Key"], UploadId=one["UploadId"])
    await s3.delete_bucket(Bucket=bucket)


async def test_a_database_is_deleting_until_its_final_snapshot_is_complete(cloud: AwsTestAccount) -> None:
    await cloud.aws.behave(database_goes=1.0, snapshot_takes=10.0)
    await cloud.aws.set_rate(0)
    name, rds = await make(cloud, "aws.rds-instance"), await cloud.client("rds")
    said = "InvalidParameterCombination"
    assert (await refused(rds.delete_db_instance(DBInstanceIdentifier=name)))[0] == said
    both = {"SkipFinalSnapshot": True, "FinalDBSnapshotIdentifier": "final"}
    assert (await refused(rds.delete_db_instance(DBInstanceIdentifier=name, **both)))[0] == said
    await rds.delete_db_instance(DBInstanceIdentifier=name, FinalDBSnapshotIdentifier="final")

    async def states() -> tuple[str, str]:
        instance = (await rds.describe_db_instances(DBInstanceIdentifier=name))["DBInstances"][0]
        snapshot = (await rds.describe_db_snapshots(DBSnapshotIdentifier="final"))["DBSnapshots"][0]
        assert snapshot["DbiResourceId"] == instance["DbiResourceId"]
        return instance["DBInstanceStatus"], snapshot["Status"]

    assert await states() == ("deleting", "creating")
    again = rds.delete_db_instance(DBInstanceIdentifier=name, SkipFinalSnapshot=True)
    assert (await refused(again))[0] == "InvalidDBInstanceState"
    await cloud.aws.advance(5)
    assert await states() == ("deleting", "creating")
    await cloud.aws.advance(6)
    assert (await refused(rds.describe_db_instances(DBInstanceIdentifier=name)))[0] == "DBInstanceNotFound"
    snapshot = (await rds.describe_db_snapshots(DBSnapshotIdentifier="final"))["DBSnapshots"][0]
    assert snapshot["Status"] == "available"


async def test_two_instances_of_one_name_have_different_ids(cloud: AwsTestAccount) -> None:
    await cloud.aws.behave(database_goes=0.0)
    row, found = IDENTIFIER_ROWS["aws.rds-instance"], list[Any]()
    for _ in range(2):
        await row.create(cloud.builder, "of-a-test", {})
        found.append((await row.show(cloud.builder, "of-a-test"))["DbiResourceId"])
        await row.remove(cloud.builder, "of-a-test")
    assert len(set(found)) == 2


async def test_a_policy_that_is_attached_or_a_boundary_or_has_versions_is_not_deleted(cloud: AwsTestAccount) -> None:
    arn, iam = await make(cloud, "aws.iam-policy"), await cloud.client("iam")
    conflict = ("DeleteConflict", 409)
    await iam.create_role(RoleName="of-a-test", AssumeRolePolicyDocument=TRUST, PermissionsBoundary=arn)
    assert await refused(iam.delete_policy(PolicyArn=arn)) == conflict
    bounded = await iam.list_entities_for_policy(PolicyArn=arn, PolicyUsageFilter="PermissionsBoundary")
    assert [one["RoleName"] for one in bounded["PolicyRoles"]] == ["of-a-test"]
    await iam.delete_role(RoleName="of-a-test")
    await iam.create_policy_version(PolicyArn=arn, PolicyDocument=POLICY, SetAsDefault=True)
    assert await refused(iam.delete_policy(PolicyArn=arn)) == conflict
    await iam.delete_policy_version(PolicyArn=arn, VersionId="v1")
    await iam.create_user(UserName="of-a-test")
    await iam.attach_user_policy(UserName="of-a-test", PolicyArn=arn)
    assert await refused(iam.delete_policy(PolicyArn=arn)) == conflict
    await iam.detach_user_policy(UserName="of-a-test", PolicyArn=arn)
    await iam.delete_policy(PolicyArn=arn)


async def test_a_key_is_scheduled_once_and_within_bounds(cloud: AwsTestAccount) -> None:
    key, kms = await make(cloud, "aws.kms-key"), await cloud.client("kms")
    assert (await refused(kms.schedule_key_deletion(KeyId=key, PendingWindowInDays=6)))[0] == "ValidationException"
    await kms.schedule_key_deletion(KeyId=key, PendingWindowInDays=7)
    again = kms.schedule_key_deletion(KeyId=key, PendingWindowInDays=7)
    assert (await refused(again))[0] == "KMSInvalidStateException"


async def test_a_protected_log_group_is_not_deleted(cloud: AwsTestAccount) -> None:
    await cloud.aws.behave(protected_log_groups=True)
    name, logs = await make(cloud, "aws.log-group"), await cloud.client("logs")
    assert (await refused(logs.delete_log_group(logGroupName=name)))[0] == "ValidationException"
    await logs.put_log_group_deletion_protection(logGroupIdentifier=name, deletionProtectionEnabled=False)
    await logs.delete_log_group(logGroupName=name)
