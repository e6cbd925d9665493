"""Dropped deletions: the resources of the object stay, also after Redis has expired the deletion."""

from datetime import timedelta

from service.contract.names import FINALIZER
from tests.integration.command_line import knell
from tests.integration.judged_source import JudgedSource
from tests.integration.watch_side import WatchSide, judged, side

__all__ = ["judged", "side"]

PROTECTED = "knell.dev/prevent-delete"


async def test_a_dropped_deletion_keeps_its_resources_after_its_record_has_expired(
    judged: JudgedSource, side: WatchSide
) -> None:
    await side.begin()
    await judged.work()
    one = await judged.gone("w", annotations={PROTECTED: "true"})
    await judged.until_held(one, PROTECTED)
    # From here on the source is not watched, until every record has expired.
    await side.end()
    answer = await knell(judged, "held", "drop", f"deletion:{one.deletion}", "--yes")
    assert answer.code == 0, answer.err
    now = timedelta()
    await judged.shard(one).expire(finished=now, audit=now, audit_entries=100, lanes=now, most=100)
    assert await judged.state(one) is None
    judged.annotate("w", **{PROTECTED: None})
    await side.begin()

    async def released() -> bool:
        return judged.read("w") is None

    await judged.until("w is released", released)
    assert judged.there("w")
    assert judged.deletes == 0
    # Of an object that is gone nothing has to be remembered.
    await side.end()
    assert await judged.inventory.dropped() == {one.uid: (judged.namespace, "w")}
    await side.begin()
    assert await judged.inventory.dropped() == {}


async def test_what_was_not_dropped_in_the_end_is_not_remembered_as_dropped(
    judged: JudgedSource, side: WatchSide
) -> None:
    await side.begin()
    await judged.work()
    one = await judged.gone("w", annotations={PROTECTED: "true"})
    await judged.until_held(one, PROTECTED)
    assert (await knell(judged, "held", "replay", f"deletion:{one.deletion}")).code == 0
    judged.annotate("w", **{PROTECTED: None})
    await judged.until_done(one)
    answer = await knell(judged, "held", "drop", f"deletion:{one.deletion}", "--yes")
    assert (answer.code, "is not held" in answer.err) == (1, True)
    assert await judged.inventory.dropped() == {}


async def test_a_dropped_deletion_is_remembered_while_its_object_is_outside_the_selector(
    judged: JudgedSource, side: WatchSide
) -> None:
    judged.source(selector="team=a")
    await side.begin()
    await judged.work()
    # The watch side takes our finalizer off what left the selector; another one keeps the object until it is read.
    finalizers = [FINALIZER, "example.org/backup"]
    one = await judged.gone("w", annotations={PROTECTED: "true"}, labels={"team": "a"}, finalizers=finalizers)
    await judged.until_held(one, PROTECTED)
    await side.end()
    assert (await knell(judged, "held", "drop", f"deletion:{one.deletion}", "--yes")).code == 0
    path = judged.path("w")
    judged.api.kube.patch(path, {"metadata": {"labels": {"team": "b"}}})
    await side.begin()
    assert await judged.inventory.dropped() == {one.uid: (judged.namespace, "w")}
    judged.unmark("w")
    await side.end()
    await side.begin()
    assert await judged.inventory.dropped() == {}
