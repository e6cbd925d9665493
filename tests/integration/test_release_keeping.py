"""The step before a release in which what stays is marked: whatever fails there, the object is released in the end."""

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from redis.exceptions import RedisError

from service.contract.kept import Decision
from service.contract.names import DELETION_POLICY, FINALIZER, PREFIX
from service.engine.calls import ServerAway
from service.engine.kept import KeptMemory
from service.kubernetes import NotServed
from tests.clusters import TestApi
from tests.integration.staged import SOURCE, Stage, staged
from tests.servers import TestServer
from workers.handlers.memory import Keep
from workers.handlers.objects import About
from workers.handlers.protocol import NotCleared
from workers.handlers.simulated import Simulated
from workers.judging import keeping
from workers.judging.keeping import AGAIN, DONE, WITHIN, KeepingStep
from workers.judging.wiring import places_in

ABSENT = "absent.knell.test"


@pytest.fixture
async def stage(api: TestApi, embedded_server: TestServer, tmp_path: Path) -> AsyncIterator[Stage]:
    async with staged(api, embedded_server, tmp_path) as made:
        yield made


class Marking(Simulated):
    """A collector whose marks fail with `error`, where there is one."""

    error: Exception | None = None
    asked: Keep | None = None

    async def keep(self, keep: Keep) -> Sequence[Decision]:
        self.asked = keep
        if self.error is not None:
            raise self.error
        return ()


class Steps:
    """The step alone, at a time that a test chooses."""

    def __init__(self, stage: Stage) -> None:
        self.now, self.collector = 1_700_000_000.0, Marking(stage.provider.address)
        self.places = places_in(stage.settings, {"local": stage.cluster}, stage.installation)
        self.step = KeepingStep(
            stage.settings.sources, self.places, {"simulated": self.collector}, KeptMemory(stage.installation),
            now=lambda: self.now,
        )  # fmt: skip


@pytest.fixture
async def steps(stage: Stage) -> AsyncIterator[Steps]:
    made = Steps(stage)
    yield made
    await made.places.aclose()


def about(stage: Stage, resource: str) -> About:
    return About(
        deletion=f"{stage.identity}/{resource}/u/1", source=SOURCE, cluster=stage.identity, resource=resource, uid="u",
        name="w", namespace=stage.namespace, kept="left: so",
    )  # fmt: skip


async def test_an_unexpected_error_of_a_mark_is_waited_out_for_minutes_and_no_longer(
    stage: Stage, steps: Steps
) -> None:  # fmt: skip
    steps.collector.error, one = ValueError("no such field; password=hunter2"), about(stage, stage.crd.resource)
    first = await steps.step.keep(one, "")
    assert first is not None
    assert (first.check_after, "ValueError: no such field" in first.detail) == (AGAIN, True)
    steps.now += WITHIN.total_seconds() + 1
    last = await steps.step.keep(one, first.resume)
    assert last is not None
    assert (last.check_after, last.resume) == (timedelta(0), DONE)
    assert "nothing is remembered of what stays: ValueError: no such field" in last.detail
    assert "hunter2" not in first.detail + last.detail


async def test_an_object_is_released_although_what_stays_can_not_be_marked(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "WITHIN", timedelta(0))
    one = await stage.going("w", annotations={f"{PREFIX}/{DELETION_POLICY}": "retain"}, finalizers=[FINALIZER])
    collector = Marking(stage.provider.address)
    collector.error = ValueError("no such field")
    await stage.work(collector=collector)
    await stage.until_done(one)
    assert stage.read("w") is None
    assert stage.there("w")
    assert any("what stays: ValueError: no such field" in str(entry) for entry in await stage.audit())


@pytest.mark.parametrize("error", [NotCleared("paused"), ServerAway("no answer"), RedisError("wrong type")])
async def test_what_the_runtime_and_redis_say_is_no_error_of_a_mark(
    stage: Stage, steps: Steps, error: Exception
) -> None:  # fmt: skip
    steps.collector.error = error
    with pytest.raises(type(error)):
        await steps.step.keep(about(stage, stage.crd.resource), "")


async def test_an_observed_object_whose_crd_is_gone_is_gone(stage: Stage) -> None:
    stage.source(mode="observe")
    steps = Steps(stage)
    found = await steps.step.keep(about(stage, ABSENT), "")
    assert found is not None
    assert found.resume == DONE
    assert steps.collector.asked is not None
    assert (steps.collector.asked.live, steps.collector.asked.namesake) == (None, False)
    await steps.places.aclose()


async def test_an_object_with_our_finalizer_waits_for_its_crd(stage: Stage, steps: Steps) -> None:
    """Without it nothing is released anyway, and what stays could not be told."""
    with pytest.raises(NotServed):
        await steps.step.keep(about(stage, ABSENT), "")
    assert steps.collector.asked is None
