"""Whether what is in no VPC may go although a namesake is there that is going, too: else each would wait for the other.
Volumes and addresses have nothing but their tag, which both share. They may go all the same where everybody whose they
may be wants them gone and nobody uses them any more: then it is all one which of the two removes them.

So the other is read afresh and asked all that it would be asked itself: it is going, which nobody takes back; it waits
for us; policy, marks and guard let it be collected; it is neither paused nor moving; it wants these very tasks; and
nothing of it runs that could use or make them again. Whatever can't be told holds.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator

from service.contract.aws import CAPA, Task
from service.kubernetes import Live
from service.policy.scope import switched
from service.policy.selectors import parse
from service.policy.verdict import Facts, verdict_of
from service.settings import Settings, SourceSettings
from workers.handlers.aws.errors import AwsError, NoAccess
from workers.handlers.aws.evidence import Evidence, Held, no_machines, not_moving
from workers.handlers.aws.model import Reach, Whose
from workers.handlers.aws.namesakes import InTheWay, Other
from workers.handlers.aws.owners import Subject, Unclear, subject_of, whole
from workers.handlers.aws.tasks import tasks_of
from workers.handlers.aws.words import told
from workers.handlers.places import Place, Places

Guarded = Callable[[str, str, int], Awaitable[str]]
"""Why the guard of a source holds an object of that uid, going since so many milliseconds; empty where it does not."""


class Leaving:
    """`guarded` is missing where nothing is ever destroyed, as for who only shows a plan."""

    def __init__(
        self, settings: Settings, places: Places, reach: Reach, evidence: Evidence, guarded: Guarded | None
    ) -> None:
        self._settings, self._places, self._reach = settings, places, reach
        self._evidence, self._guarded = evidence, guarded

    async def objection(self, other: Other, whose: Whose, account: str, tasks: Collection[Task]) -> InTheWay | None:
        """Why what these tasks are about can't go as long as the other is there; None where it can. `whose` calls in
        the account that both are in. Raises ClusterError."""
        try:
            await self._agrees(other, whose, account, tasks)
        except AwsError as error:
            return InTheWay(told(error), waits=error.what == "throttled")
        except Held as held:
            return InTheWay(str(held), held.waits)
        except (Unclear, NoAccess) as error:
            return InTheWay(str(error))
        return None

    async def _agrees(self, other: Other, whose: Whose, account: str, tasks: Collection[Task]) -> None:
        place = self._places.of(other.whose.source)
        if place is None:
            raise Held(f"this process has no way to the cluster of source {other.whose.source}")
        live = await place.get(other.resource, other.whose.namespace, other.object)
        if live is None or live.uid != other.uid:
            raise Held("it is another one by now", waits=True)
        subject = whole(subject_of(other.resource, live.raw))
        if (subject.name, subject.region) != (other.name, whose.region):
            raise Held("it was changed just now", waits=True)
        if not (subject.going and subject.marked):
            raise Held("it does not wait to be collected")
        if kept := [task for task in tasks if task not in tasks_of(subject.annotations, self._settings.aws)]:
            raise Held(f"with it {', '.join(kept)} would stay")
        await self._let(subject, live, place)
        await not_moving(subject, place)
        await no_machines(subject, place)
        calls = await self._reach.calls(whose, account=account, paced=True)
        await self._evidence.nothing_runs(subject, calls, apart=False)

    # ---- what we ourselves would make of it

    async def _let(self, subject: Subject, live: Live, place: Place) -> None:
        marks = await asyncio.shield(place.marks(subject.namespace))
        sources = list(self._watching(subject, live, place))
        if not sources:
            raise Held("no source is about it")
        for name, source in sources:
            found = verdict_of(
                Facts(
                    source=source, policy=self._settings.policy, features=self._settings.features, labels=live.labels,
                    annotations=live.annotations, namespace=marks,
                )
            )  # fmt: skip
            if found.kind != "delete":
                raise Held(f"{found.kind}: {found.reason}")
            if self._guarded is not None and (why := await self._guarded(name, live.uid, live.deleting)):
                raise Held(why)

    def _watching(self, subject: Subject, live: Live, place: Place) -> Iterator[tuple[str, SourceSettings]]:
        for name, source in self._settings.sources.items():
            if (source.collector, source.resource) != (CAPA, subject.resource) or self._places.of(name) is not place:
                continue
            if source.namespaces and subject.namespace not in source.namespaces:
                continue
            if switched(live.annotations, source) is not None or parse(source.selector).matches(live.labels):
                yield name, source
