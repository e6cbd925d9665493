"""A deletion that a person dropped: what its object owns stays, also once Redis has forgotten the deletion."""

from datetime import timedelta

from service.contract.names import FINALIZER
from tests.integration.operating import knell
from tests.integration.staged import Stage
from tests.integration.watch_side import Side, side, stage

__all__ = ["side", "stage"]

PROTECTED = "knell.dev/prevent-delete"


async def test_a_dropped_deletion_keeps_its_resources_after_its_record_has_expired(stage: Stage, side: Side) -> None:
    await side.begin()
    await stage.work()
    one = await stage.gone("w", annotations={PROTECTED: "true"})
    await stage.until_held(one, PROTECTED)
    # From here on the source is not watched, until every record has expired.
    await side.end()
    answer = await knell(stage, "held", "drop", f"deletion:{one.deletion}", "--yes")
    assert answer.code == 0, answer.err
    now = timedelta()
    await stage.shard(one).expire(finished=now, audit=now, audit_entries=100, lanes=now, most=100)
    assert await stage.state(one) is None
    stage.annotate("w", **{PROTECTED: None})
    await side.begin()

    async def released() -> bool:
        return stage.read("w") is None

    await stage.until("w is released", released)
    assert stage.there("w")
    assert stage.deletes == 0
    # Of an object that is gone nothing has to be remembered.
    await side.end()
    assert await stage.inventory.dropped() == {one.uid: (stage.namespace, "w")}
    await side.begin()
    assert await stage.inventory.dropped() == {}


async def test_what_was_not_dropped_in_the_end_is_not_remembered_as_dropped(stage: Stage, side: Side) -> None:
    await side.begin()
    await stage.work()
    one = await stage.gone("w", annotations={PROTECTED: "true"})
    await stage.until_held(one, PROTECTED)
    assert (await knell(stage, "held", "replay", f"deletion:{one.deletion}")).code == 0
    stage.annotate("w", **{PROTECTED: None})
    await stage.until_done(one)
    answer = await knell(stage, "held", "drop", f"deletion:{one.deletion}", "--yes")
    assert (answer.code, "is not held" in answer.err) == (1, True)
    assert await stage.inventory.dropped() == {}


async def test_a_dropped_deletion_is_remembered_while_its_object_is_outside_the_selector(
    stage: Stage, side: Side
) -> None:
    stage.source(selector="team=a")
    await side.begin()
    await stage.work()
    # The watch side takes our finalizer off what left the selector; another one keeps the object until it is read.
    finalizers = [FINALIZER, "example.org/backup"]
    one = await stage.gone("w", annotations={PROTECTED: "true"}, labels={"team": "a"}, finalizers=finalizers)
    await stage.until_held(one, PROTECTED)
    await side.end()
    assert (await knell(stage, "held", "drop", f"deletion:{one.deletion}", "--yes")).code == 0
    path = stage.path("w")
    stage.api.kube.patch(path, {"metadata": {"labels": {"team": "b"}}})
    await side.begin()
    assert await stage.inventory.dropped() == {one.uid: (stage.namespace, "w")}
    stage.unmark("w")
    await side.end()
    await side.begin()
    assert await stage.inventory.dropped() == {}
