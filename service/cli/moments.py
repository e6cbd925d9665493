"""Moments of first enabling as the clusters and Redis have them, compared: a disagreement is shown to a person.
A cluster that does not answer is waited for only shortly; then nothing is said of its sources."""

import asyncio
from collections.abc import Mapping

import msgspec

from service.cli.holders import PATIENCE
from service.engine.keys import Keys
from service.engine.moments import KEY, field_of
from service.kubernetes import ClusterError
from service.settings import Settings
from service.watching.clusters import cluster_of, reached
from service.watching.enabling import NAME, NotEnabled, kept_moments, read_moment


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """Of one source: as the ConfigMap and as Redis has it, None where it is not there. `fault` and `mend` say what a
    person has to know and to do, both empty where nothing is wrong."""

    configmap: str | None
    redis: str | None
    fault: str = ""
    mend: str = ""


async def moments(settings: Settings, copies: Mapping[str, str]) -> dict[str, Moment]:
    """For every declared source whose cluster can be asked; `copies` is what Redis has."""
    parts = await asyncio.gather(*(_of_cluster(settings, name, copies) for name in settings.clusters))
    return {source: found for part in parts for source, found in part.items()}


async def _of_cluster(settings: Settings, name: str, copies: Mapping[str, str]) -> dict[str, Moment]:
    sources = [source for source in settings.sources if cluster_of(settings, source) == name]
    if not sources:
        return {}
    try:
        async with asyncio.timeout(PATIENCE.total_seconds()), reached(settings, name) as cluster:
            uid = await cluster.identity()
            kept = await kept_moments(cluster, settings.watch.namespace)
    except (ClusterError, TimeoutError):
        return {}
    return {one: _compared(settings, one, kept.get(one), field_of(uid, one), copies) for one in sources}


def _compared(settings: Settings, source: str, configmap: str | None, field: str, copies: Mapping[str, str]) -> Moment:
    redis, where = copies.get(field), f"ConfigMap {settings.watch.namespace}/{NAME}"
    key = Keys(settings.redis.prefix, settings.redis.shards).of(0, KEY)
    fault = mend = ""
    try:
        kept = None if configmap is None else read_moment(configmap, where, source)
        copy = None if redis is None else read_moment(redis, f"the hash {key} in Redis", source)
    except NotEnabled as error:
        fault, _, mend = str(error).partition("; ")
        return Moment(configmap=configmap, redis=redis, fault=fault, mend=mend)
    if copy is not None and kept is None:
        fault = f"{where} has no moment of first enabling for source {source}, its copy in Redis says {redis}"
        mend = "the copy counts, and is written there when the source is next begun; look who removed it"
    elif copy is not None and copy != kept:
        fault = f"{where} says that source {source} was first enabled at {configmap}, its copy in Redis says {redis}"
        mend = (
            f"the earlier counts; write the right one to both (kubectl -n {settings.watch.namespace} edit configmap "
            f"{NAME}; redis-cli HSET '{key}' '{field}' MOMENT) and restart the watchers"
        )
    return Moment(configmap=configmap, redis=redis, fault=fault, mend=mend)
