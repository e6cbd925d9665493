"""ECR repositories, identified by name. One that has images blocks the deletion, or is deleted with them, only if the
settings allow it."""

from typing import Final

from service.contract import Blocked, Verdict
from workers.providers.aws.client.paging import require_list
from workers.providers.aws.errors import AwsError
from workers.providers.aws.kinds.declaration import AwsAttempt, AwsKind, creation_time
from workers.providers.aws.model import AwsClient, AwsResource
from workers.providers.aws.reading.each import read_each
from workers.providers.aws.reading.ec2 import Item, tags_of
from workers.removal import Accepted

NAME: Final = "aws.ecr-repository"


async def _describe(client: AwsClient, name: str) -> Item:
    answer = await client.call("ecr", "describe_repositories", repositoryNames=[name])
    found = require_list(answer, "repositories", "ecr", "describe_repositories")
    if [one["repositoryName"] for one in found] != [name]:
        raise AwsError("unreadable", "ecr:DescribeRepositories", "OtherIds", f"the answer is not about {name}")
    return found[0]


async def _exists(client: AwsClient, name: str) -> AwsResource:
    return _parse(await _describe(client, name), {})


async def _read(client: AwsClient, name: str) -> AwsResource:
    found = await _describe(client, name)
    answer = await client.call("ecr", "list_tags_for_resource", resourceArn=found["repositoryArn"])
    return _parse(found, tags_of({"Tags": require_list(answer, "tags", "ecr", "list_tags_for_resource")}))


def _parse(item: Item, tags: dict[str, str]) -> AwsResource:
    return AwsResource(kind=NAME, id=item["repositoryName"], tags=tags, made=item["createdAt"])


async def _delete(attempt: AwsAttempt) -> Accepted:
    force = attempt.settings.delete_images
    await attempt.client.call("ecr", "delete_repository", repositoryName=attempt.resource.id, force=force)
    return Accepted("deleted with its images" if force else "deleted")


async def _not_empty(attempt: AwsAttempt, error: AwsError) -> Verdict:
    return Blocked(
        f"{attempt.resource.id} has images: delete them, or let Knell do it (setting aws.delete_images); AWS says: "
        f"{error.message}",
        person=True,
    )


ECR_REPOSITORY = AwsKind(
    name=NAME,
    service="ecr",
    delete_operation="ecr.DeleteRepository",
    check_operation="ecr.DescribeRepositories",
    arn=("ecr", "repository"),
    id_pattern=r".+",
    read=read_each(_read),
    read_operations=("ecr.DescribeRepositories", "ecr.ListTagsForResource"),
    exists=read_each(_exists),
    in_vpc=False,
    in_tagging_api=False,
    incarnation=creation_time,
    delete=_delete,
    on_dependency=_not_empty,
)
