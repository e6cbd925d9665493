"""What a person decided to keep stays: after its job was abandoned, and after the next cluster of that name is gone."""

import asyncio

import pytest

from service.stream.views.jobs import list_jobs
from tests.scenarios.aws.belongings import a_few
from tests.scenarios.aws.clusters import Infra
from tests.scenarios.aws.stage import Stage


async def job_of(stage: Stage, target: str) -> str:
    """The id of the open job about one resource."""

    async def look() -> str:
        found = await list_jobs(stage.installation, state=None, lane=None, limit=1000)
        return next((job.id for job in found.jobs if job.target == target), "")

    return str(await stage.until(f"there is a job about {target}", look))


async def abandon(stage: Stage, infra: Infra, target: str) -> None:
    job = await job_of(stage, target)
    answer = await asyncio.to_thread(stage.knell, "jobs", "abandon", job, "--yes")
    assert answer.code == 0, answer
    await stage.until_released(infra)


@pytest.mark.invariant(10)
async def test_an_abandoned_group_stays_and_its_object_is_released(stage: Stage) -> None:
    await stage.start()
    infra = await stage.unmanaged("prod")
    had = await a_few(stage.world, infra.tag, infra.vpc)
    (group,), users = had.groups, await stage.world.group(infra.vpc, name="database")
    rule = await stage.world.rule(users, group, port=5432)
    await stage.until_marked(infra)
    await stage.delete(infra)
    await stage.until_told(infra, group, f"ingress rule of {users} (database) for tcp 5432")
    await abandon(stage, infra, group)
    await stage.world.ec2.revoke_security_group_ingress(GroupId=users, SecurityGroupRuleIds=[rule])
    # Another one of the same account shows that the service goes on.
    other = await stage.unmanaged("other")
    await a_few(stage.world, other.tag, other.vpc)
    await stage.until_marked(other)
    await stage.delete(other)
    await stage.until_released(other)
    standing = await stage.world.standing()
    assert group in standing
    assert not {*had.ids} & standing - {group}
    assert group not in {one for entry in await stage.changes() for one in entry.ids if "Delete" in entry.action}
