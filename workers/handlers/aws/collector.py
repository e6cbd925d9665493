"""The collector of AWSClusters and AWSManagedControlPlanes: which resources outside go with one of them.
Nothing is planned before it is known whose they are, where, and that nobody will make them again."""

from collections.abc import Awaitable, Iterator, Mapping
from typing import Final

import msgspec

from service.cluster import ClusterError
from service.contract import FINALLY, Hold, Plan, Target
from service.contract.aws import CAPA, EXTERNAL_RESOURCE_TASKS, TASKS, Task
from service.settings import Settings
from workers.handlers.aws import evidence, owners
from workers.handlers.aws.accounts import account_fault
from workers.handlers.aws.checking import SETTLED, Settling, lane_of
from workers.handlers.aws.errors import AwsError, NoAccess
from workers.handlers.aws.evidence import Evidence, Held
from workers.handlers.aws.finding import Finding, Finds
from workers.handlers.aws.kinds import KINDS
from workers.handlers.aws.model import Owner, Reach
from workers.handlers.aws.namesakes import Namesakes
from workers.handlers.aws.owners import LET_GO, Subject, Unclear
from workers.handlers.aws.wanting import Terms, Wanting
from workers.handlers.aws.words import remarks, told, vague
from workers.handlers.objects import Facts
from workers.handlers.places import Place, Places

NOWHERE: Final = frozenset[Task](kind.task for kind in KINDS if not kind.in_vpc)
"""Tasks whose resources are in no VPC, so that only their tag says whose they are."""

BOTH: Final = frozenset[Task]({"security-group", "aws-load-balancer-controller"})
"""Tasks with which all of a cluster's security groups go, under whichever tag."""


class CapaCollector:
    """`wanting` keeps for the handlers what each look at an object said."""

    name = CAPA
    metadata_only = False

    def __init__(self, settings: Settings, places: Places, reach: Reach, finding: Finding, wanting: Wanting) -> None:
        self._wanting = wanting
        self._aws, self._places, self._reach, self._finding = settings.aws, places, reach, finding
        self._expected = settings.aws.account or ""
        self._evidence = Evidence()
        self._namesakes = Namesakes(settings, places, reach)

    async def collect(self, facts: Facts) -> Plan | Hold:
        try:
            return await self._collect(facts)
        except Unclear as error:
            return Hold(str(error), again=True)
        except Held as held:
            return Hold(str(held), again=True, after=held.after)
        except NoAccess as error:
            return Hold(str(error), again=True, after=evidence.AGAIN if error.again else None)
        except AwsError as error:
            after = (error.after or evidence.AGAIN) if error.what == "throttled" else evidence.AGAIN
            return Hold(told(error), again=True, after=None if error.what == "denied" else after)
        except ClusterError as error:
            reason = f"its management cluster can't be asked: {type(error).__name__}: {error}"
            return Hold(reason, again=True, after=evidence.AGAIN)

    async def objects_to(self, facts: Facts) -> str | None:
        """Right before a destructive call. What only AWS can tell of the resource itself is asked by the attempt, in
        the account that is recorded in its target. Raises where something can't be asked."""
        try:
            subject, place = self._subject(facts)
            await evidence.not_moving(subject, place)
            tasks = tasks_of(subject.annotations, self._aws.tasks)
            await self._account(subject, facts, tasks, recent=True)
        except (Unclear, Held, NoAccess) as error:
            return str(error)
        self._wanting.note(facts.about.deletion, Terms(subject, tasks))
        return None

    async def aclose(self) -> None:
        await self._evidence.aclose()
        await self._namesakes.aclose()

    # ---- collecting

    async def _collect(self, facts: Facts) -> Plan:
        subject, place = self._subject(facts)
        tasks = tasks_of(subject.annotations, self._aws.tasks)
        await evidence.not_moving(subject, place)
        early = [await _too_early(subject, evidence.no_machines(subject, place))]
        account = await self._account(subject, facts, tasks, recent=False)
        calls = await self._reach.calls(subject.whose(facts.about.source), account=account, paced=True)
        await self._evidence.vpc(subject, calls, self._expected)
        early.append(await _too_early(subject, self._evidence.nothing_runs(subject, calls, apart=_apart(tasks))))
        owner = Owner(
            whose=calls.whose, account=account, name=subject.name, vpc=subject.vpc, snapshot=self._aws.snapshot_first,
            both={*tasks} >= BOTH, spared=subject.spared,
        )  # fmt: skip
        finds = await self._finding.find(owner, tasks, calls)
        if finds.vague:
            raise Held(vague(finds, subject.called), evidence.LATER)
        return Plan([*_targets(finds), self._last(owner, tasks)], "; ".join(filter(None, (*early, remarks(finds)))))

    def _subject(self, facts: Facts) -> tuple[Subject, Place]:
        place, live = self._places.of(facts.about.source), facts.live
        if place is None:
            raise Held(f"this process has no way to the cluster of source {facts.about.source}")
        if live is None or not bytes(live.raw):
            raise Unclear(f"the text of {facts.about.object} is not at hand")
        return owners.whole(owners.subject_of(facts.about.resource, live.raw)), place

    async def _account(self, subject: Subject, facts: Facts, tasks: tuple[Task, ...], *, recent: bool) -> str:
        """The caller's, which everything that is known of the object agrees with, and no namesake shares."""
        account = (await self._reach.calls(subject.whose(facts.about.source))).account
        if (fault := account_fault(subject, account, self._expected)) is not None:
            raise Held(fault, evidence.LATER)
        if (other := await self._namesakes.of(subject, account, apart=_apart(tasks), recent=recent)) is not None:
            raise Held(
                f"{other} has the same name in its tags ({subject.name}), in the same region and, as far as is known, "
                f"in the same account: what is tagged may be its; {LET_GO}"
            )
        return account

    def _last(self, owner: Owner, tasks: tuple[Task, ...]) -> Target:
        """Removes nothing if all is well: it sees to it that nothing is left, or was made again."""
        data = msgspec.json.encode(Settling(owner=owner, tasks=tasks)).decode()
        return Target(
            kind=SETTLED, id=owner.name, lane=lane_of(owner), chain=FINALLY, data=data, after=self._aws.settle
        )


async def _too_early(subject: Subject, look: Awaitable[None]) -> str:
    """For an object that lives, whose plan somebody only wants to see, it is a remark."""
    try:
        await look
    except Held as held:
        if subject.going:
            raise
        return str(held)
    return ""


def _apart(tasks: tuple[Task, ...]) -> bool:
    """Whether everything that they remove is in a VPC, which tells it apart from a namesake's."""
    return not NOWHERE & {*tasks}


def tasks_of(annotations: Mapping[str, str], default: tuple[Task, ...]) -> tuple[Task, ...]:
    """In their own order, whatever theirs is in the annotation: the stages know what comes first."""
    said = annotations.get(EXTERNAL_RESOURCE_TASKS)
    if said is None:
        return tuple(task for task in TASKS if task in default)
    words = [word.strip() for word in said.split(",")]
    for word in words:
        if word not in TASKS:
            what = f"names a task {word!r}" if word else "names an empty task"
            raise Unclear(f"annotation {EXTERNAL_RESOURCE_TASKS} {what}; there is: {', '.join(TASKS)}")
    return tuple(task for task in TASKS if task in words)


def _targets(finds: Finds) -> Iterator[Target]:
    """Also what may not be read: its attempt is refused, and shows which permission is wanting."""
    named = [(claim.kind, claim.owner, claim.found.id) for claim in finds.claims]
    named += [(unread.kind, unread.owner, one) for unread in finds.unread for one in unread.ids]
    for kind, owner, one in named:
        yield Target(
            kind=kind.name, id=one, lane=f"{owner.place}/{kind.operation}", chain=kind.chain, stage=kind.stage,
            data=msgspec.json.encode(owner).decode(),
        )  # fmt: skip
