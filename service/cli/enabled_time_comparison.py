"""Comparison of the first-enabling times of sources: ConfigMap in the cluster against the copy in Redis.
Sources of a cluster that does not answer within a short timeout are left out."""

import asyncio
from collections.abc import Mapping

import msgspec

from service.cli.lease_holders import PATIENCE
from service.engine.enabled_times import KEY, field_of
from service.engine.keys import Keys
from service.kubernetes import ClusterError
from service.settings import Settings
from service.watching.cluster_identity import cluster_of, connect_to
from service.watching.enabling_configmap import CONFIGMAP, NotEnabled, parse_time, stored_times


class EnabledTimeComparison(msgspec.Struct, frozen=True, kw_only=True):
    """First-enabling time of one source in the ConfigMap and in Redis, None if it is missing there. `fault` describes a
    disagreement and `mend` how to resolve it."""

    configmap: str | None
    redis: str | None
    fault: str = ""
    mend: str = ""


async def compare_enabled_times(settings: Settings, copies: Mapping[str, str]) -> dict[str, EnabledTimeComparison]:
    """For every declared source whose cluster answers; `copies` is the content of Redis."""
    parts = await asyncio.gather(*(_of_cluster(settings, name, copies) for name in settings.clusters))
    return {source: found for part in parts for source, found in part.items()}


async def _of_cluster(settings: Settings, name: str, copies: Mapping[str, str]) -> dict[str, EnabledTimeComparison]:
    sources = [source for source in settings.sources if cluster_of(settings, source) == name]
    if not sources:
        return {}
    try:
        async with asyncio.timeout(PATIENCE.total_seconds()), connect_to(settings, name) as cluster:
            uid = await cluster.identity()
            kept = await stored_times(cluster, settings.watch.namespace)
    except (ClusterError, TimeoutError):
        return {}
    return {one: _compare(settings, one, kept.get(one), field_of(uid, one), copies) for one in sources}


def _compare(
    settings: Settings, source: str, configmap: str | None, field: str, copies: Mapping[str, str]
) -> EnabledTimeComparison:
    redis, where = copies.get(field), f"ConfigMap {settings.watch.namespace}/{CONFIGMAP}"
    key = Keys(settings.redis.prefix, settings.redis.shards).of(0, KEY)
    fault = mend = ""
    try:
        kept = None if configmap is None else parse_time(configmap, where, source)
        copy = None if redis is None else parse_time(redis, f"the hash {key} in Redis", source)
    except NotEnabled as error:
        fault, _, mend = str(error).partition("; ")
        return EnabledTimeComparison(configmap=configmap, redis=redis, fault=fault, mend=mend)
    if copy is not None and kept is None:
        fault = f"{where} has no moment of first enabling for source {source}, its copy in Redis says {redis}"
        mend = "the copy counts, and is written there when the source is next begun; look who removed it"
    elif copy is not None and copy != kept:
        fault = f"{where} says that source {source} was first enabled at {configmap}, its copy in Redis says {redis}"
        mend = (
            f"the earlier counts; write the right one to both (kubectl -n {settings.watch.namespace} edit configmap "
            f"{CONFIGMAP}; redis-cli HSET '{key}' '{field}' MOMENT) and restart the watchers"
        )
    return EnabledTimeComparison(configmap=configmap, redis=redis, fault=fault, mend=mend)
