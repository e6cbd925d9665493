"""Garbage collector of Cluster API Provider AWS as a program of our own: its AWS calls, in its order.

One pass lists a cluster's resources and deletes them one after the other; the first error ends the pass, and the
cluster is queued again after a wait that doubles from 5 ms. Five clusters are worked on at a time.

Each cluster's clients also have a limit of their own in front there: bursts of 100 reads and 200 changes, then 20 and 5
a second. It is left out, for no pass comes near it, and a pass that was refused has waited longer than it asks for."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from typing import Final

from botocore.exceptions import BotoCoreError, ClientError

from bench.order import AwsOrder
from bench.peers.capa_resources import AwsClients, account_of, described, tagged
from bench.peers.loops import fastest_loop
from bench.peers.tally import answer

AT_ONCE: Final = 5
FIRST_WAIT: Final = 0.005
LONGEST_WAIT: Final = 1000.0
SERVICE_TAG: Final = "kubernetes.io/service-name"
EKS_TAG: Final = "aws:eks:cluster-name"


async def one_pass(account: AwsClients, cluster: str, finding: str) -> None:
    find = tagged if finding == "tagging" else described
    resources = await find(account, f"kubernetes.io/cluster/{cluster}")
    of_services = [one for one in resources if one.service == "elasticloadbalancing" and one.tags.get(SERVICE_TAG)]
    for balancer in of_services:
        if balancer.path.startswith(("loadbalancer/app/", "loadbalancer/net/")):
            await account.call("elbv2", "delete_load_balancer", LoadBalancerArn=balancer.arn)
        elif balancer.path.startswith("loadbalancer/"):
            await account.call("elb", "delete_load_balancer", LoadBalancerName=balancer.path.split("/", 1)[1])
    for group in of_services:
        if group.path.startswith("targetgroup/"):
            await account.call("elbv2", "delete_target_group", TargetGroupArn=group.arn)
    for group in resources:
        if group.service == "ec2" and group.path.startswith("security-group/") and not group.tags.get(EKS_TAG):
            await account.call("ec2", "delete_security_group", GroupId=group.path.split("/", 1)[1])


class Controller:
    """Its queue: each cluster is in it once, and is over after the first pass without an error."""

    def __init__(self, account: AwsClients, order: AwsOrder) -> None:
        self._account, self._order = account, order
        self._ready: asyncio.Queue[str] = asyncio.Queue()
        self._failures: Counter[str] = Counter()

    @property
    def failed(self) -> int:
        """How many passes so far."""
        return self._failures.total()

    async def run(self) -> None:
        for cluster in self._order.clusters:
            self._ready.put_nowait(cluster)
        async with asyncio.TaskGroup() as group:
            workers = [group.create_task(self._work()) for _ in range(AT_ONCE)]
            await self._ready.join()
            for worker in workers:
                worker.cancel()

    async def _work(self) -> None:
        while True:
            cluster = await self._ready.get()
            try:
                await one_pass(self._account, cluster, self._order.finding)
            except (ClientError, BotoCoreError):
                self._again(cluster)
            else:
                self._ready.task_done()

    def _again(self, cluster: str) -> None:
        """A cluster that waits is not done: it keeps its place in the count of the queue."""
        wait = min(FIRST_WAIT * 2 ** self._failures[cluster], LONGEST_WAIT)
        self._failures[cluster] += 1
        asyncio.get_running_loop().call_later(wait / self._order.scale, self._come_again, cluster)

    def _come_again(self, cluster: str) -> None:
        self._ready.put_nowait(cluster)
        # It was counted when it came first, and `put` has counted it once more.
        self._ready.task_done()


async def main(order: AwsOrder) -> None:
    async with account_of(order) as account:
        controller = Controller(account, order)
        answer(began=time.time())
        await controller.run()
        answer(failed=controller.failed)


if __name__ == "__main__":
    fastest_loop()(main(AwsOrder.decode(sys.argv[1])))
