"""Cluster API clusters on the API server, as many as a row needs: each a Cluster and the AWSCluster that it owns.

A contender that collects puts a finalizer on the AWSClusters; they are deleted all at once, and gone when released."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import aiohttp

from bench import objects
from bench.objects import DELETED_AT_ONCE
from tests.capi import AWS_CLUSTERS, CLUSTERS, CORE, KINDS, reference


async def define(session: aiohttp.ClientSession) -> None:
    """All kinds of Cluster API and its AWS provider, unless they are there."""
    await objects.define_crds(session, KINDS)


async def create(session: aiohttp.ClientSession, namespace: str, region: str, vpcs: Mapping[str, str]) -> None:
    """One of each name, in its VPC."""

    async def one(item: tuple[str, str]) -> None:
        name, vpc = item
        body = CLUSTERS.body(name) | {"spec": {"infrastructureRef": reference(AWS_CLUSTERS, name)}}
        owner = await objects.answer(session, "POST", CLUSTERS.path(namespace), body)
        metadata = {
            "labels": {"cluster.x-k8s.io/cluster-name": name},
            "ownerReferences": [
                {
                    "apiVersion": f"{CORE}/{CLUSTERS.versions[0]}", "kind": CLUSTERS.kind,
                    "name": name, "uid": owner["metadata"]["uid"],
                }
            ],
        }  # fmt: skip
        spec = {"region": region, "network": {"vpc": {"id": vpc}}}
        path = AWS_CLUSTERS.path(namespace)
        await objects.answer(session, "POST", path, AWS_CLUSTERS.body(name, **metadata) | {"spec": spec})

    await objects.each(vpcs.items(), one)


async def wait_until_held(
    session: aiohttp.ClientSession, namespace: str, count: int, within: float, check: Callable[[], None]
) -> None:
    """Until each AWSCluster carries a finalizer."""

    async def held() -> bool:
        found = await objects.answer(session, "GET", AWS_CLUSTERS.path(namespace))
        return sum(bool(one["metadata"].get("finalizers")) for one in found["items"]) == count

    await objects.until(held, within, f"all {count} AWSClusters had a finalizer", check)


async def delete(session: aiohttp.ClientSession, namespace: str, names: list[str]) -> float:
    """Epoch seconds of the first call. Cluster API deletes the Cluster first and the rest through it; what counts here
    is when the AWSCluster begins to go."""
    began = time.time()
    path = AWS_CLUSTERS.path(namespace)
    await objects.each(names, lambda name: objects.answer(session, "DELETE", f"{path}/{name}"), DELETED_AT_ONCE)
    return began


async def left(session: aiohttp.ClientSession, namespace: str) -> int:
    found = await objects.answer(session, "GET", AWS_CLUSTERS.path(namespace))
    return len(found["items"])


async def abandon(session: aiohttp.ClientSession, namespace: str) -> None:
    """Takes all finalizers off what is left: the process that held it is gone, and so is the account."""
    path = AWS_CLUSTERS.path(namespace)
    found = await objects.answer(session, "GET", path)
    bare = {"metadata": {"finalizers": None}}
    await objects.each(
        [one["metadata"]["name"] for one in found["items"]],
        lambda name: objects.answer(session, "PATCH", f"{path}/{name}", bare),
    )
