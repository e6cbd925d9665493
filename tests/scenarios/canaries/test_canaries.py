"""A canary in every credential there is: none shows in Redis, logs, metrics, Events, conditions or command output.
First everything works, then every server answers with errors that repeat the request, credentials included."""

import asyncio
from pathlib import Path

import pytest
import redis

from tests.capi import AWS_CLUSTERS
from tests.karpenter import NODECLAIMS
from tests.scenarios.canaries import commands, environments, search, steps
from tests.scenarios.canaries.canary_setup import KIND, opened


@pytest.mark.timeout(900)
@pytest.mark.long  # seventy commands, and some of them wait for what does not answer
@pytest.mark.invariant(12)
async def test_no_canary_of_any_credential_shows_in_anything_that_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path, monkeypatch) as scene:
        replica, told = scene.launch("run"), commands.CommandOutputs()
        await steps.works(scene)
        await steps.protects(scene)
        await steps.stuck(scene)
        await steps.fails(scene)
        surface = [
            (f"GET {path}", (await asyncio.to_thread(replica.process.get, path))[1].encode())
            for path in ("/metrics", "/readyz", "/healthz", "/livez")
        ]
        await commands.looked_at(scene, told)
        await commands.misled(scene, told)
        await commands.inside(scene, told, monkeypatch)
        await commands.unusable_key(scene, told)
        await environments.tried(scene, told)
        await replica.stop()
        # Who has not had one can't have shown it.
        assert scene.known.sendable() - scene.seen() == set()
        with redis.Redis(port=scene.server.port, protocol=2) as client:
            stored = await asyncio.to_thread(lambda: list(search.in_redis(client)))
        paths = (NODECLAIMS.path(), AWS_CLUSTERS.path(scene.namespace), KIND.path())
        objects = [one for api in scene.apis.values() for one in search.in_cluster(api.kube, *paths)]
        places = [*stored, *objects, *surface, *told.places, ("the log of `knell run`", replica.log.encode())]
        assert {where.split()[0] for where, _ in places} >= {"Redis", "GET", "`knell", "the"}
        assert any("events" in where for where, _ in objects)
        assert search.leaks(places, scene.known.forms()) == []
