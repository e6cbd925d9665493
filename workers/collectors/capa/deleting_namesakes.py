"""Check whether resources outside a VPC may be deleted while a namesake is being deleted, too.

Volumes and addresses are identified by their tag alone, which both clusters share; without this check each would wait
for the other. They may be deleted if every possible owner wants them deleted and nothing uses them: then it does not
matter which of the two removes them.

So the other object is read again and passes the checks of its own deletion: it is being deleted and waits for our
finalizer; policy, annotations and guard allow its collection; it is neither paused nor moving; it wants the same tasks;
and nothing of it runs that could use or recreate the resources. Whatever can't be determined holds.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator

from service.kubernetes import KubeObject
from service.policy.evaluation import PolicyInput, evaluate_policy
from service.policy.scope import gc_switch
from service.policy.selectors import parse_selector
from service.settings import Settings, SourceSettings
from service.sources.capa import CAPA, AwsSettings, Task
from workers.collectors.capa.capa_object import CapaObject, UnusableObject, parse_capa_object, require_complete
from workers.collectors.capa.messages import describe_error
from workers.collectors.capa.namesakes import NamesakeCandidate, NamesakeConflict
from workers.collectors.capa.preconditions import (
    AwsPreconditions,
    PreconditionFailed,
    require_no_machines,
    require_not_moving,
)
from workers.collectors.capa.tasks import tasks_of
from workers.handlers.source_clusters import SourceCluster, SourceClusters
from workers.providers.aws.errors import AwsError, NoAccess
from workers.providers.aws.model import AwsClients, CallScope

GuardCheck = Callable[[str, str, int], Awaitable[str]]
"""Why the guard of a source holds the object of that uid, in deletion since that time in milliseconds; empty if not."""


class DeletingNamesakes:
    """`guard_check` is None where nothing is deleted, as when a plan is displayed."""

    def __init__(
        self,
        settings: Settings,
        places: SourceClusters,
        clients: AwsClients,
        preconditions: AwsPreconditions,
        guard_check: GuardCheck | None,
    ) -> None:
        self._settings, self._places, self._clients = settings, places, clients
        self._preconditions, self._guard_check = preconditions, guard_check

    async def conflict(
        self, other: NamesakeCandidate, scope: CallScope, account: str, tasks: Collection[Task]
    ) -> NamesakeConflict | None:
        """Why resources of these tasks can't be deleted while the other exists; None if they can. `scope` reads in the
        account of both. Raises ClusterError."""
        try:
            await self._require_agreement(other, scope, account, tasks)
        except AwsError as error:
            return NamesakeConflict(describe_error(error), waits=error.what == "throttled")
        except PreconditionFailed as held:
            return NamesakeConflict(str(held), held.waits)
        except (UnusableObject, NoAccess) as error:
            return NamesakeConflict(str(error))
        return None

    async def _require_agreement(
        self, other: NamesakeCandidate, scope: CallScope, account: str, tasks: Collection[Task]
    ) -> None:
        place = self._places.of(other.scope.source)
        if place is None:
            raise PreconditionFailed(f"this process has no way to the cluster of source {other.scope.source}")
        live = await place.get(other.resource, other.scope.namespace, other.object)
        if live is None or live.uid != other.uid:
            raise PreconditionFailed("it is another one by now", waits=True)
        subject = require_complete(parse_capa_object(other.resource, live.raw))
        if (subject.name, subject.region) != (other.name, scope.region):
            raise PreconditionFailed("it was changed just now", waits=True)
        if not (subject.is_deleting and subject.has_finalizer):
            raise PreconditionFailed("it does not wait to be collected")
        if kept := [
            task for task in tasks if task not in tasks_of(subject.annotations, self._settings.section(AwsSettings))
        ]:
            raise PreconditionFailed(f"with it {', '.join(kept)} would stay")
        await self._require_allowed(subject, live, place)
        await require_not_moving(subject, place)
        await require_no_machines(subject, place)
        client = await self._clients.client(scope, account=account, paced=True)
        await self._preconditions.require_nothing_running(subject, client, all_in_vpc=False)

    # ---- policy and guard of the other object

    async def _require_allowed(self, subject: CapaObject, live: KubeObject, place: SourceCluster) -> None:
        marks = await asyncio.shield(place.marks(subject.namespace))
        sources = list(self._sources_of(subject, live, place))
        if not sources:
            raise PreconditionFailed("no source is about it")
        for name, source in sources:
            found = evaluate_policy(
                PolicyInput(
                    source=source, policy=self._settings.policy, features=self._settings.features, labels=live.labels,
                    annotations=live.annotations, namespace=marks,
                )
            )  # fmt: skip
            if found.kind != "delete":
                raise PreconditionFailed(f"{found.kind}: {found.reason}")
            if self._guard_check is not None and (why := await self._guard_check(name, live.uid, live.deleting)):
                raise PreconditionFailed(why)

    def _sources_of(
        self, subject: CapaObject, live: KubeObject, place: SourceCluster
    ) -> Iterator[tuple[str, SourceSettings]]:
        for name, source in self._settings.sources.items():
            if (source.collector, source.resource) != (CAPA, subject.resource) or self._places.of(name) is not place:
                continue
            if source.namespaces and subject.namespace not in source.namespaces:
                continue
            if gc_switch(live.annotations, source) is not None or parse_selector(source.selector).matches(live.labels):
                yield name, source
