"""The tag `knell.dev/retained` is written on resources of every kind, and removed again; no other tag changes."""

import pytest

from service.contract.kept import RETAINED_TAG
from tests.aws_kinds import AWS_KINDS, AwsKindRow
from tests.integration.aws_removal import AwsRemovalFixture, named, removing
from workers.providers.aws.client.operations import operation_names
from workers.providers.aws.retained_tag_calls import remove_retained_tag, write_retained_tag
from workers.providers.aws.services import tag_calls_of

__all__ = ["removing"]

VALUE = "kept/1"


@pytest.mark.parametrize("row", AWS_KINDS.values(), ids=lambda row: row.name)
async def test_the_tag_is_written_and_removed_on_every_kind(removing: AwsRemovalFixture, row: AwsKindRow) -> None:
    build, kind = removing.cloud.builder, named(row.name)
    vpc = await build.vpc()
    tags = row.tags("c1")
    ids = [await row.make(build, vpc, tags) for _ in range(2)]
    other = await row.make(build, vpc, tags)
    client = await removing.reach.client(removing.owner().scope)

    async def read() -> list[dict[str, str]]:
        found = await kind.read(client, [*ids, other])
        return [dict(found[one].tags) for one in (*ids, other)]

    before = await read()
    marked = await write_retained_tag(client, [(kind, one) for one in ids], VALUE)
    assert [(one.kind, one.id, one.tag) for one in marked] == [(row.name, one, "") for one in ids]
    assert await read() == [*({**one, RETAINED_TAG: VALUE} for one in before[:2]), before[2]]
    assert await remove_retained_tag(client, kind, ids, VALUE) == dict.fromkeys(ids)
    assert await read() == before
    calls = tag_calls_of(kind.service)
    made = [operation_names(kind.service, name).limited for name in (calls.add, calls.remove)]
    assert len(await removing.asked(*made)) == 2 * (2 if calls.max_ids == 1 else 1)
