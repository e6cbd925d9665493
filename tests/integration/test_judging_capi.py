"""Clusters on AWS in a worker: held, released or deleted according to their marks, feature and finalizer.
The resources are those of the simulated provider; only the decision is tested."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from service.contract.names import FINALIZER, GC
from service.policy.capi import CLUSTER_PAUSED, DELETE_FOR_MOVE
from service.settings import FeatureSettings
from service.sources.capa import AWS_FINALIZER, CAPA, EXTERNAL_RESOURCE_GC, FEATURE
from tests.api_servers import TestApi
from tests.capi import AWS_CLUSTERS, install
from tests.engine.engine_under_test import RunningWorker
from tests.integration.judged_source import SOURCE, JudgedSource, judged_source
from tests.redis_servers import TestServer
from tests.simulated.handler import SimulatedHandler


class SimulatedCapaCollector(SimulatedHandler):
    """Names what the object's spec names, under the name that the source asks for."""

    name = CAPA


@pytest.fixture
async def judged(api: TestApi, embedded_server: TestServer, tmp_path: Path) -> AsyncIterator[JudgedSource]:
    install(api.kube)
    async with judged_source(api, embedded_server, tmp_path, own_crd=AWS_CLUSTERS, collector=CAPA) as made:
        switch(made, on=True)
        made.have_patience()
        yield made


def switch(judged: JudgedSource, *, on: bool) -> None:
    features = FeatureSettings(frozenset({FEATURE} if on else ()))
    judged.settings = msgspec.structs.replace(judged.settings, features=features)


async def work(judged: JudgedSource) -> RunningWorker:
    return await judged.work(collector=SimulatedCapaCollector(judged.provider.address))


async def going(judged: JudgedSource, **made: Any) -> Any:
    return await judged.going("w", 2, **{"finalizers": [AWS_FINALIZER], **made})


def finalizers(judged: JudgedSource) -> list[str]:
    return list(judged.read("w")["metadata"]["finalizers"])


async def test_exactly_its_own_finalizer_comes_off_when_everything_is_gone(judged: JudgedSource) -> None:
    one = await going(judged, finalizers=["example.com/other", FINALIZER, AWS_FINALIZER])
    await work(judged)
    await judged.until_done(one)
    assert not judged.there("w")
    assert finalizers(judged) == ["example.com/other", FINALIZER]


async def test_the_finalizer_of_other_sources_does_not_make_it_one_of_ours(judged: JudgedSource) -> None:
    one = await going(judged, finalizers=["example.com/other"])
    await work(judged)
    await judged.until_held(one, f"does not have our finalizer {AWS_FINALIZER}")
    assert judged.there("w")


@pytest.mark.parametrize(
    ("annotation", "value"),
    [(EXTERNAL_RESOURCE_GC, "false"), (GC, "disabled"), (DELETE_FOR_MOVE, ""), (DELETE_FOR_MOVE, "anything")],
)
@pytest.mark.parametrize("when", ["before", "in the middle"])
async def test_an_opt_out_or_a_move_lets_it_go_and_removes_nothing(
    judged: JudgedSource, annotation: str, value: str, when: str
) -> None:
    await judged.stop_lanes()
    one = await going(judged, annotations={annotation: value} if when == "before" else {})
    await work(judged)
    await judged.until_state(one, "releasing" if when == "before" else "running")
    if when != "before":
        judged.annotate("w", **{annotation: value})
    await judged.free_lanes()
    await judged.until_done(one)
    assert judged.read("w") is None
    assert judged.there("w")
    assert judged.deletes == 0
    record = await judged.deletion(one)
    assert annotation in (record["withdrawn"] if when != "before" else record["policy"])


@pytest.mark.parametrize(
    ("annotations", "words"),
    [
        ({CLUSTER_PAUSED: ""}, f"paused: annotation {CLUSTER_PAUSED}"),
        ({EXTERNAL_RESOURCE_GC: "nope"}, "allowed: true, false"),
        ({EXTERNAL_RESOURCE_GC: "true", GC: "disabled"}, "disagree"),
        ({CLUSTER_PAUSED: "true", EXTERNAL_RESOURCE_GC: "false"}, "paused: "),
    ],
)
@pytest.mark.parametrize("when", ["before", "in the middle"])
async def test_a_pause_and_an_unknown_value_hold(
    judged: JudgedSource, annotations: dict[str, str], words: str, when: str
) -> None:
    await judged.stop_lanes()
    one = await going(judged, annotations=annotations if when == "before" else {})
    await work(judged)
    if when == "before":
        await judged.until_held(one, words)
    else:
        await judged.until_state(one, "running")
        judged.annotate("w", **annotations)
        await judged.free_lanes()
        await judged.until_refused(one, words)
    assert judged.deletes == 0
    assert finalizers(judged) == [AWS_FINALIZER]


async def test_without_the_feature_it_is_held_and_with_it_it_goes_on(judged: JudgedSource) -> None:
    switch(judged, on=False)
    one = await going(judged, annotations={EXTERNAL_RESOURCE_GC: "true"})
    running = await work(judged)
    await judged.until_held(one, FEATURE, "is off")
    assert finalizers(judged) == [AWS_FINALIZER]
    await running.stop()
    switch(judged, on=True)
    await judged.installation.shard_of(one.deletion).recheck([(one.deletion, 0)], "the feature is on")
    await work(judged)
    await judged.until_done(one)
    assert judged.read("w") is None
    assert not judged.there("w")


async def test_a_feature_switched_off_in_the_middle_stops_what_is_open_and_the_release(judged: JudgedSource) -> None:
    await judged.stop_lanes()
    one = await going(judged)
    retained = await judged.going("kept", finalizers=[AWS_FINALIZER], annotations={EXTERNAL_RESOURCE_GC: "false"})
    running = await work(judged)
    await judged.until_state(one, "running")
    await judged.until_state(retained, "releasing")
    await running.stop()
    switch(judged, on=False)
    await judged.free_lanes()
    await work(judged)
    await judged.until_refused(one, FEATURE, "is off")
    await judged.until_refused(retained, FEATURE, "is off")
    assert judged.deletes == 0
    assert finalizers(judged) == [AWS_FINALIZER]
    assert judged.read("kept") is not None


async def test_a_source_that_got_another_collector_withdraws_and_releases_nothing(judged: JudgedSource) -> None:
    await judged.stop_lanes()
    one = await going(judged)
    retained = await judged.going("kept", finalizers=[AWS_FINALIZER], annotations={EXTERNAL_RESOURCE_GC: "false"})
    running = await work(judged)
    await judged.until_state(one, "running")
    await judged.until_state(retained, "releasing")
    await running.stop()
    judged.source(collector="simulated")
    await judged.free_lanes()
    await judged.work()
    await judged.until_refused(one, f"it has our finalizer {AWS_FINALIZER}", "give its source that collector again")
    await judged.until_refused(retained, f"it has our finalizer {AWS_FINALIZER}")
    assert judged.deletes == 0
    assert finalizers(judged) == [AWS_FINALIZER]
    assert "withdrawn" not in await judged.deletion(one)


async def test_a_pause_put_on_after_everything_is_gone_keeps_the_finalizer(judged: JudgedSource) -> None:
    await judged.stop_lanes()
    one = await judged.going("w", 0, finalizers=[AWS_FINALIZER])
    await work(judged)
    await judged.until_state(one, "releasing")
    judged.annotate("w", **{CLUSTER_PAUSED: "true"})
    await judged.free_lanes()
    await judged.until_refused(one, CLUSTER_PAUSED)
    assert finalizers(judged) == [AWS_FINALIZER]
    assert judged.settings.sources[SOURCE].collector == CAPA
