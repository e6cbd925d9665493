"""Clusters on AWS on the worker's side: held, let go or removed by their own marks, feature and finalizer.
The resources here are the simulated provider's; what the objects say is what is tried."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from service.contract.aws import (
    AWS_FINALIZER,
    CAPA,
    CLUSTER_PAUSED,
    DELETE_FOR_MOVE,
    EXTERNAL_RESOURCE_GC,
    FEATURE,
)
from service.contract.names import FINALIZER, GC
from service.settings import FeatureSettings
from tests.capi import AWS_CLUSTERS, install
from tests.clusters import TestApi
from tests.engine.world import Running
from tests.integration.staged import SOURCE, Stage, staged
from tests.servers import TestServer
from workers.handlers.simulated import Simulated


class AsCapa(Simulated):
    """Names what the object's spec names, under the name that the source asks for."""

    name = CAPA


@pytest.fixture
async def stage(api: TestApi, embedded_server: TestServer, tmp_path: Path) -> AsyncIterator[Stage]:
    install(api.kube)
    async with staged(api, embedded_server, tmp_path, own_crd=AWS_CLUSTERS, collector=CAPA) as made:
        switch(made, on=True)
        made.have_patience()
        yield made


def switch(stage: Stage, *, on: bool) -> None:
    stage.settings = msgspec.structs.replace(stage.settings, features=FeatureSettings(external_resource_gc=on))


async def work(stage: Stage) -> Running:
    return await stage.work(collector=AsCapa(stage.provider.address))


async def going(stage: Stage, **made: Any) -> Any:
    return await stage.going("w", 2, **{"finalizers": [AWS_FINALIZER], **made})


def finalizers(stage: Stage) -> list[str]:
    return list(stage.read("w")["metadata"]["finalizers"])


async def test_exactly_its_own_finalizer_comes_off_when_everything_is_gone(stage: Stage) -> None:
    one = await going(stage, finalizers=["example.com/other", FINALIZER, AWS_FINALIZER])
    await work(stage)
    await stage.until_done(one)
    assert not stage.there("w")
    assert finalizers(stage) == ["example.com/other", FINALIZER]


async def test_the_finalizer_of_other_sources_does_not_make_it_one_of_ours(stage: Stage) -> None:
    one = await going(stage, finalizers=["example.com/other"])
    await work(stage)
    await stage.until_held(one, f"does not have our finalizer {AWS_FINALIZER}")
    assert stage.there("w")


@pytest.mark.parametrize(
    ("annotation", "value"),
    [(EXTERNAL_RESOURCE_GC, "false"), (GC, "disabled"), (DELETE_FOR_MOVE, ""), (DELETE_FOR_MOVE, "anything")],
)
@pytest.mark.parametrize("when", ["before", "in the middle"])
async def test_an_opt_out_or_a_move_lets_it_go_and_removes_nothing(
    stage: Stage, annotation: str, value: str, when: str
) -> None:
    await stage.stop_lanes()
    one = await going(stage, annotations={annotation: value} if when == "before" else {})
    await work(stage)
    await stage.until_state(one, "releasing" if when == "before" else "running")
    if when != "before":
        stage.annotate("w", **{annotation: value})
    await stage.free_lanes()
    await stage.until_done(one)
    assert stage.read("w") is None
    assert stage.there("w")
    assert stage.deletes == 0
    record = await stage.deletion(one)
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
async def test_a_pause_and_what_nobody_understands_hold(
    stage: Stage, annotations: dict[str, str], words: str, when: str
) -> None:
    await stage.stop_lanes()
    one = await going(stage, annotations=annotations if when == "before" else {})
    await work(stage)
    if when == "before":
        await stage.until_held(one, words)
    else:
        await stage.until_state(one, "running")
        stage.annotate("w", **annotations)
        await stage.free_lanes()
        await stage.until_refused(one, words)
    assert stage.deletes == 0
    assert finalizers(stage) == [AWS_FINALIZER]


async def test_without_the_feature_it_is_held_and_with_it_it_goes_on(stage: Stage) -> None:
    switch(stage, on=False)
    one = await going(stage, annotations={EXTERNAL_RESOURCE_GC: "true"})
    running = await work(stage)
    await stage.until_held(one, FEATURE, "is off")
    assert finalizers(stage) == [AWS_FINALIZER]
    await running.stop()
    switch(stage, on=True)
    await stage.installation.shard_of(one.deletion).reconsider([(one.deletion, 0)], "the feature is on")
    await work(stage)
    await stage.until_done(one)
    assert stage.read("w") is None
    assert not stage.there("w")


async def test_a_feature_switched_off_in_the_middle_stops_what_is_open_and_the_release(stage: Stage) -> None:
    await stage.stop_lanes()
    one = await going(stage)
    retained = await stage.going("kept", finalizers=[AWS_FINALIZER], annotations={EXTERNAL_RESOURCE_GC: "false"})
    running = await work(stage)
    await stage.until_state(one, "running")
    await stage.until_state(retained, "releasing")
    await running.stop()
    switch(stage, on=False)
    await stage.free_lanes()
    await work(stage)
    await stage.until_refused(one, FEATURE, "is off")
    await stage.until_refused(retained, FEATURE, "is off")
    assert stage.deletes == 0
    assert finalizers(stage) == [AWS_FINALIZER]
    assert stage.read("kept") is not None


async def test_a_source_that_got_another_collector_withdraws_and_releases_nothing(stage: Stage) -> None:
    await stage.stop_lanes()
    one = await going(stage)
    retained = await stage.going("kept", finalizers=[AWS_FINALIZER], annotations={EXTERNAL_RESOURCE_GC: "false"})
    running = await work(stage)
    await stage.until_state(one, "running")
    await stage.until_state(retained, "releasing")
    await running.stop()
    stage.source(collector="simulated")
    await stage.free_lanes()
    await stage.work()
    await stage.until_refused(one, f"it has our finalizer {AWS_FINALIZER}", "give its source that collector again")
    await stage.until_refused(retained, f"it has our finalizer {AWS_FINALIZER}")
    assert stage.deletes == 0
    assert finalizers(stage) == [AWS_FINALIZER]
    assert "withdrawn" not in await stage.deletion(one)


async def test_a_pause_put_on_after_everything_is_gone_keeps_the_finalizer(stage: Stage) -> None:
    await stage.stop_lanes()
    one = await stage.going("w", 0, finalizers=[AWS_FINALIZER])
    await work(stage)
    await stage.until_state(one, "releasing")
    stage.annotate("w", **{CLUSTER_PAUSED: "true"})
    await stage.free_lanes()
    await stage.until_refused(one, CLUSTER_PAUSED)
    assert finalizers(stage) == [AWS_FINALIZER]
    assert stage.settings.sources[SOURCE].collector == CAPA
