"""Registry of the AWS kinds that are removed by identifier, for tests: one row per kind, by its name, that says how
such a resource is created in the stand-in and seen there. `tests/unit/test_kind_registries.py` compares it with the
kinds."""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from botocore.exceptions import ClientError

from standins.aws.builder import ACCOUNT, REGION, AwsBuilder
from standins.aws.tags import Tags, pairs

TRUST: Final = json.dumps({"Version": "2012-10-17", "Statement": []})
POLICY: Final = json.dumps(
    {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:ListAllMyBuckets", "Resource": "*"}]}
)
PASSWORD: Final = "a-password-of-a-test"


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentifierKindRow:
    """`create` makes one of that name and returns its id; `show` returns what AWS says of it, and raises one of the
    codes `not_found` where there is none. `gone` says so of one that is only scheduled for deletion. `remove` deletes
    it as its owner would, at once. `reused` ids are names that a later resource can have."""

    name: str
    service: str
    create: Callable[[AwsBuilder, str, Tags], Awaitable[str]]
    show: Callable[[AwsBuilder, str], Awaitable[Mapping[str, Any]]]
    not_found: tuple[str, ...]
    remove: Callable[[AwsBuilder, str], Awaitable[Any]]
    delete_operation: str
    missing: str
    reused: bool = True
    gone: Callable[[Mapping[str, Any]], bool] = lambda _: False

    async def exists(self, builder: AwsBuilder, id_: str) -> bool:
        try:
            return not self.gone(await self.show(builder, id_))
        except ClientError as error:
            if error.response["Error"]["Code"] not in self.not_found:
                raise
            return False


async def _bucket(builder: AwsBuilder, name: str, tags: Tags) -> str:
    s3 = await builder.client("s3")
    await s3.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": builder.region})
    if tags:
        await s3.put_bucket_tagging(Bucket=name, Tagging={"TagSet": pairs(tags)})
    return name


async def _show_bucket(builder: AwsBuilder, name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = await (await builder.client("s3")).get_bucket_location(Bucket=name)
    return found


async def _remove_bucket(builder: AwsBuilder, name: str) -> None:
    await (await builder.client("s3")).delete_bucket(Bucket=name)


async def _instance(builder: AwsBuilder, name: str, tags: Tags) -> str:
    await (await builder.client("rds")).create_db_instance(
        DBInstanceIdentifier=name, DBInstanceClass="db.t3.micro", Engine="postgres", AllocatedStorage=20,
        MasterUsername="master", MasterUserPassword=PASSWORD, Tags=pairs(tags),
    )  # fmt: skip
    return name


async def _show_instance(builder: AwsBuilder, name: str) -> Mapping[str, Any]:
    found = await (await builder.client("rds")).describe_db_instances(DBInstanceIdentifier=name)
    one: Mapping[str, Any] = found["DBInstances"][0]
    return one


async def _remove_instance(builder: AwsBuilder, name: str) -> None:
    await (await builder.client("rds")).delete_db_instance(DBInstanceIdentifier=name, SkipFinalSnapshot=True)


async def _cluster(builder: AwsBuilder, name: str, tags: Tags) -> str:
    await (await builder.client("rds")).create_db_cluster(
        DBClusterIdentifier=name, Engine="aurora-postgresql", MasterUsername="master", MasterUserPassword=PASSWORD,
        Tags=pairs(tags),
    )  # fmt: skip
    return name


async def _show_cluster(builder: AwsBuilder, name: str) -> Mapping[str, Any]:
    found = await (await builder.client("rds")).describe_db_clusters(DBClusterIdentifier=name)
    one: Mapping[str, Any] = found["DBClusters"][0]
    return one


async def _remove_cluster(builder: AwsBuilder, name: str) -> None:
    await (await builder.client("rds")).delete_db_cluster(DBClusterIdentifier=name, SkipFinalSnapshot=True)


async def role(builder: AwsBuilder, name: str, tags: Tags, *, path: str = "/") -> str:
    iam = await builder.client("iam")
    await iam.create_role(RoleName=name, Path=path, AssumeRolePolicyDocument=TRUST, Tags=pairs(tags))
    return name


async def _show_role(builder: AwsBuilder, name: str) -> Mapping[str, Any]:
    found = await (await builder.client("iam")).get_role(RoleName=name)
    one: Mapping[str, Any] = found["Role"]
    return one


async def _remove_role(builder: AwsBuilder, name: str) -> None:
    await (await builder.client("iam")).delete_role(RoleName=name)


async def policy(builder: AwsBuilder, name: str, tags: Tags, *, path: str = "/") -> str:
    iam = await builder.client("iam")
    made = await iam.create_policy(PolicyName=name, Path=path, PolicyDocument=POLICY, Tags=pairs(tags))
    return str(made["Policy"]["Arn"])


async def _show_policy(builder: AwsBuilder, arn: str) -> Mapping[str, Any]:
    found = await (await builder.client("iam")).get_policy(PolicyArn=arn)
    one: Mapping[str, Any] = found["Policy"]
    return one


async def _remove_policy(builder: AwsBuilder, arn: str) -> None:
    await (await builder.client("iam")).delete_policy(PolicyArn=arn)


async def _repository(builder: AwsBuilder, name: str, tags: Tags) -> str:
    await (await builder.client("ecr")).create_repository(repositoryName=name, tags=pairs(tags))
    return name


async def _show_repository(builder: AwsBuilder, name: str) -> Mapping[str, Any]:
    found = await (await builder.client("ecr")).describe_repositories(repositoryNames=[name])
    one: Mapping[str, Any] = found["repositories"][0]
    return one


async def _remove_repository(builder: AwsBuilder, name: str) -> None:
    await (await builder.client("ecr")).delete_repository(repositoryName=name)


async def _key(builder: AwsBuilder, name: str, tags: Tags) -> str:
    given = [{"TagKey": key, "TagValue": value} for key, value in tags.items()]
    made = await (await builder.client("kms")).create_key(Description=name, Tags=given)
    return str(made["KeyMetadata"]["KeyId"])


async def _show_key(builder: AwsBuilder, key: str) -> Mapping[str, Any]:
    found = await (await builder.client("kms")).describe_key(KeyId=key)
    one: Mapping[str, Any] = found["KeyMetadata"]
    return one


async def _remove_key(builder: AwsBuilder, key: str) -> None:
    await (await builder.client("kms")).schedule_key_deletion(KeyId=key, PendingWindowInDays=7)


async def _secret(builder: AwsBuilder, name: str, tags: Tags) -> str:
    made = await (await builder.client("secretsmanager")).create_secret(
        Name=name, SecretString="of a test", Tags=pairs(tags)
    )
    return str(made["ARN"])


async def _show_secret(builder: AwsBuilder, arn: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = await (await builder.client("secretsmanager")).describe_secret(SecretId=arn)
    return found


async def _remove_secret(builder: AwsBuilder, arn: str) -> None:
    client = await builder.client("secretsmanager")
    await client.delete_secret(SecretId=arn, ForceDeleteWithoutRecovery=True)


async def _log_group(builder: AwsBuilder, name: str, tags: Tags) -> str:
    logs = await builder.client("logs")
    await logs.create_log_group(logGroupName=name, tags=tags)
    return name


async def _show_log_group(builder: AwsBuilder, name: str) -> Mapping[str, Any]:
    """AWS has no read by name, so there is no code for a missing one."""
    found = await (await builder.client("logs")).describe_log_groups(logGroupNamePrefix=name)
    return next((one for one in found["logGroups"] if one["logGroupName"] == name), {})


async def _remove_log_group(builder: AwsBuilder, name: str) -> None:
    await (await builder.client("logs")).delete_log_group(logGroupName=name)


_ROWS: Final = (
    IdentifierKindRow(
        name="aws.s3-bucket",
        service="s3",
        create=_bucket,
        show=_show_bucket,
        not_found=("NoSuchBucket",),
        remove=_remove_bucket,
        delete_operation="s3.DeleteBucket",
        missing="no-such-bucket",
    ),
    IdentifierKindRow(
        name="aws.rds-instance",
        service="rds",
        create=_instance,
        show=_show_instance,
        not_found=("DBInstanceNotFound",),
        remove=_remove_instance,
        delete_operation="rds.DeleteDBInstance",
        missing="no-such-instance",
    ),
    IdentifierKindRow(
        name="aws.rds-cluster",
        service="rds",
        create=_cluster,
        show=_show_cluster,
        not_found=("DBClusterNotFoundFault",),
        remove=_remove_cluster,
        delete_operation="rds.DeleteDBCluster",
        missing="no-such-cluster",
    ),
    IdentifierKindRow(
        name="aws.iam-role",
        service="iam",
        create=role,
        show=_show_role,
        not_found=("NoSuchEntity",),
        remove=_remove_role,
        delete_operation="iam.DeleteRole",
        missing="no-such-role",
    ),
    IdentifierKindRow(
        name="aws.iam-policy",
        service="iam",
        create=policy,
        show=_show_policy,
        not_found=("NoSuchEntity",),
        remove=_remove_policy,
        delete_operation="iam.DeletePolicy",
        missing=f"arn:aws:iam::{ACCOUNT}:policy/no-such-policy",
    ),
    IdentifierKindRow(
        name="aws.ecr-repository",
        service="ecr",
        create=_repository,
        show=_show_repository,
        not_found=("RepositoryNotFoundException",),
        remove=_remove_repository,
        delete_operation="ecr.DeleteRepository",
        missing="no/such-repository",
    ),
    IdentifierKindRow(
        name="aws.kms-key",
        service="kms",
        create=_key,
        show=_show_key,
        not_found=("NotFoundException",),
        remove=_remove_key,
        delete_operation="kms.ScheduleKeyDeletion",
        missing="11111111-2222-3333-4444-555555555555",
        reused=False,
        gone=lambda item: item["KeyState"] == "PendingDeletion",
    ),
    IdentifierKindRow(
        name="aws.secret",
        service="secretsmanager",
        create=_secret,
        show=_show_secret,
        not_found=("ResourceNotFoundException",),
        remove=_remove_secret,
        delete_operation="secretsmanager.DeleteSecret",
        missing=f"arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret:no-such-AbCdEf",
        reused=False,
        gone=lambda item: "DeletedDate" in item,
    ),
    IdentifierKindRow(
        name="aws.log-group",
        service="logs",
        create=_log_group,
        show=_show_log_group,
        not_found=("ResourceNotFoundException",),
        remove=_remove_log_group,
        delete_operation="logs.DeleteLogGroup",
        missing="/no/such/group",
        gone=lambda item: not item,
    ),
)
IDENTIFIER_ROWS: Final[Mapping[str, IdentifierKindRow]] = {row.name: row for row in _ROWS}
