"""kubernetes_asyncio's own list and watch: all pages, then the stream from there, keeping each object's uid.

As its documentation shows it, but for the pages: a list in one piece would need several times as much.
"""
# mypy: ignore-errors

import sys

from kubernetes_asyncio import client, config, watch

from bench.order import WatchOrder
from bench.peers.loops import fastest_loop
from bench.peers.tally import answer

PAGE = 500


async def main(order: WatchOrder) -> None:
    await config.load_kube_config(config_file=order.kubeconfig)
    async with client.ApiClient() as connection:
        objects = client.CustomObjectsApi(connection)
        place = (order.group, order.version, order.plural)
        uids: set[str] = set()
        more = ""
        while True:
            page = await objects.list_cluster_custom_object(*place, limit=PAGE, _continue=more)
            uids.update(one["metadata"]["uid"] for one in page["items"])
            version, more = page["metadata"]["resourceVersion"], page["metadata"].get("continue", "")
            if not more:
                break
        del page
        async with watch.Watch() as watching:
            stream = watching.stream(objects.list_cluster_custom_object, *place, resource_version=version)
            answer(listed=len(uids))
            async for event in stream:
                uids.add(event["object"]["metadata"]["uid"])
                answer(seen=len(uids))


if __name__ == "__main__":
    fastest_loop()(main(WatchOrder.decode(sys.argv[1])))
