"""Tagging of kept resources before a release: whatever fails there, the object is released in the end."""

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from redis.exceptions import RedisError

from service.contract.kept import KeepDecision
from service.contract.names import DELETION_POLICY, FINALIZER, PREFIX
from service.engine.calls import ServerUnavailable
from service.engine.kept_store import KeptStore
from service.kubernetes import NotServed
from tests.api_servers import TestApi
from tests.integration.judged_source import SOURCE, JudgedSource, judged_source
from tests.redis_servers import TestServer
from tests.simulated.handler import SimulatedHandler
from workers.handlers.collector import ObjectRef
from workers.handlers.kept_resources import KeepRequest
from workers.handlers.protocol import NotCleared
from workers.judging import kept_marking
from workers.judging.kept_marking import AGAIN, DONE, WITHIN, KeptMarkingStep
from workers.judging.registry_builder import build_source_clusters

ABSENT = "absent.knell.test"


@pytest.fixture
async def judged(api: TestApi, embedded_server: TestServer, tmp_path: Path) -> AsyncIterator[JudgedSource]:
    async with judged_source(api, embedded_server, tmp_path) as made:
        yield made


class FailingMarks(SimulatedHandler):
    """A collector whose marks fail with `error`, where there is one."""

    error: Exception | None = None
    asked: KeepRequest | None = None

    async def keep(self, keep: KeepRequest) -> Sequence[KeepDecision]:
        self.asked = keep
        if self.error is not None:
            raise self.error
        return ()


class MarkingStep:
    """The step alone, at a time that a test chooses."""

    def __init__(self, judged: JudgedSource) -> None:
        self.now, self.collector = 1_700_000_000.0, FailingMarks(judged.provider.address)
        self.places = build_source_clusters(judged.settings, {"local": judged.cluster}, judged.installation)
        self.step = KeptMarkingStep(
            judged.settings.sources, self.places, {"simulated": self.collector}, KeptStore(judged.installation),
            now=lambda: self.now,
        )  # fmt: skip


@pytest.fixture
async def steps(judged: JudgedSource) -> AsyncIterator[MarkingStep]:
    made = MarkingStep(judged)
    yield made
    await made.places.aclose()


def ref(judged: JudgedSource, resource: str) -> ObjectRef:
    return ObjectRef(
        deletion=f"{judged.identity}/{resource}/u/1", source=SOURCE, cluster=judged.identity, resource=resource,
        uid="u",
        name="w", namespace=judged.namespace, kept="left: so",
    )  # fmt: skip


async def test_an_unexpected_error_of_a_mark_is_waited_out_for_minutes_and_no_longer(
    judged: JudgedSource, steps: MarkingStep
) -> None:  # fmt: skip
    steps.collector.error, one = ValueError("no such field; password=hunter2"), ref(judged, judged.crd.resource)
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
    judged: JudgedSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_marking, "WITHIN", timedelta(0))
    one = await judged.going("w", annotations={f"{PREFIX}/{DELETION_POLICY}": "retain"}, finalizers=[FINALIZER])
    collector = FailingMarks(judged.provider.address)
    collector.error = ValueError("no such field")
    await judged.work(collector=collector)
    await judged.until_done(one)
    assert judged.read("w") is None
    assert judged.there("w")
    assert any("what stays: ValueError: no such field" in str(entry) for entry in await judged.audit())


@pytest.mark.parametrize("error", [NotCleared("paused"), ServerUnavailable("no answer"), RedisError("wrong type")])
async def test_what_the_runtime_and_redis_say_is_no_error_of_a_mark(
    judged: JudgedSource, steps: MarkingStep, error: Exception
) -> None:  # fmt: skip
    steps.collector.error = error
    with pytest.raises(type(error)):
        await steps.step.keep(ref(judged, judged.crd.resource), "")


async def test_an_observed_object_whose_crd_is_gone_is_gone(judged: JudgedSource) -> None:
    judged.source(mode="observe")
    steps = MarkingStep(judged)
    found = await steps.step.keep(ref(judged, ABSENT), "")
    assert found is not None
    assert found.resume == DONE
    assert steps.collector.asked is not None
    assert (steps.collector.asked.live, steps.collector.asked.namesake) == (None, False)
    await steps.places.aclose()


async def test_an_object_with_our_finalizer_waits_for_its_crd(judged: JudgedSource, steps: MarkingStep) -> None:
    """Without it nothing is released anyway, and what stays could not be told."""
    with pytest.raises(NotServed):
        await steps.step.keep(ref(judged, ABSENT), "")
    assert steps.collector.asked is None


async def test_what_stays_of_an_object_that_is_gone_is_not_told_by_the_one_that_has_its_name_now(
    judged: JudgedSource, steps: MarkingStep
) -> None:
    made = judged.make("w")
    gone = ref(judged, judged.crd.resource)
    await steps.step.keep(gone, "")
    assert steps.collector.asked is not None
    assert (steps.collector.asked.live, steps.collector.asked.namesake) == (None, True)
    await steps.step.keep(msgspec.structs.replace(gone, uid=made["metadata"]["uid"]), "")
    assert steps.collector.asked.live is not None
    assert not steps.collector.asked.namesake
