"""The collector of AWSClusters and AWSManagedControlPlanes: which resources outside go with one of them.
Nothing is planned before it is known whose they are, where, and that nobody will make them again."""

import time
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from service.contract import FINALLY, Hold, Plan, Target, Undecodable
from service.contract.aws import CAPA, Task
from service.contract.kept import Decision
from service.kubernetes import ClusterError
from service.settings import Settings
from workers.handlers.aws import evidence, owners
from workers.handlers.aws.accounts import account_fault
from workers.handlers.aws.chaining import targets_of
from workers.handlers.aws.checking import SETTLED, Settling, lane_of
from workers.handlers.aws.errors import AwsError, NoAccess
from workers.handlers.aws.evidence import Evidence, Held
from workers.handlers.aws.finding import Finding, StillListing
from workers.handlers.aws.gates import Gates
from workers.handlers.aws.keeping import Keeping
from workers.handlers.aws.leaving import Guarded, Leaving
from workers.handlers.aws.model import PROVIDER, Owner, Reach
from workers.handlers.aws.namesakes import Namesakes
from workers.handlers.aws.owners import LET_GO, Subject, Unclear
from workers.handlers.aws.tasks import apart, tasks_of
from workers.handlers.aws.wanting import BALANCERS, BOTH, Terms, Wanting
from workers.handlers.aws.words import remarks, to_name_vpc, told, vague
from workers.handlers.memory import Keep, Memory, NoMemory
from workers.handlers.objects import Facts
from workers.handlers.places import Place, Places


class CapaCollector:
    """`wanting` keeps for the handlers what each look at an object said."""

    name = CAPA
    metadata_only = False

    def __init__(
        self,
        settings: Settings,
        places: Places,
        reach: Reach,
        finding: Finding,
        wanting: Wanting,
        guarded: Guarded | None = None,
        memory: Memory | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wanting, self._clock = wanting, clock
        self._aws, self._places, self._reach, self._finding = settings.aws, places, reach, finding
        self._expected = settings.aws.account or ""
        self._evidence = Evidence(clock)
        self._gates = Gates(self._evidence, clock)
        leaving = Leaving(settings, places, reach, self._evidence, guarded)
        self._namesakes = Namesakes(settings, places, reach, leaving.objection)
        self._memory = memory or NoMemory()
        self._keeping = Keeping(settings, places, reach, finding, self._evidence, self._namesakes)

    async def collect(self, facts: Facts) -> Plan | Hold:
        try:
            return await self._collect(facts)
        except Unclear as error:
            return Hold(str(error), again=True)
        except Held as held:
            return Hold(str(held), again=True, after=held.after, waits=held.waits)
        except StillListing as going:
            return Hold(str(going), again=True, after=evidence.AGAIN, waits=True)
        except NoAccess as error:
            return Hold(str(error), again=True, after=evidence.AGAIN if error.again else None)
        except AwsError as error:
            after, waits = error.after or evidence.AGAIN, error.what == "throttled"
            return Hold(told(error), again=True, after=None if error.what == "denied" else after, waits=waits)
        except ClusterError as error:
            reason = f"its management cluster can't be asked: {type(error).__name__}: {error}"
            return Hold(reason, again=True, after=evidence.AGAIN)

    async def objects_to(self, facts: Facts) -> Hold | None:
        """Right before a destructive call, for the tasks that are wanted now. What only AWS can tell of the resource
        itself is asked by the attempt, in the account that is recorded in its target. Raises where something can't be
        asked."""
        try:
            subject, place = self._subject(facts)
            await evidence.not_moving(subject, place)
            tasks = tasks_of(subject.annotations, self._aws)
            # What is in no VPC has nothing but its tag: for that no list is recent enough.
            account = await self._account(subject, facts, tasks, recent=apart(tasks))
            calls = await self._reach.calls(subject.whose(facts.about.source), account=account, paced=True)
            await self._gates.still_open(subject, place, calls, apart=apart(tasks))
        except Held as held:
            return Hold(str(held), waits=held.waits)
        except (Unclear, NoAccess) as error:
            return Hold(str(error))
        except AwsError as error:
            if error.what not in ("denied", "throttled"):
                raise
            return Hold(told(error), waits=error.what == "throttled")
        abandoned = await self._memory.abandoned(facts.about.deletion)
        given_up = tuple(job.target for job in abandoned.jobs)
        self._wanting.note(facts.about.deletion, Terms(subject, tasks, given_up))
        return None

    async def keep(self, keep: Keep) -> Sequence[Decision]:
        return await self._keeping.keep(keep)

    async def aclose(self) -> None:
        await self._evidence.aclose()
        await self._namesakes.aclose()

    # ---- collecting

    async def _collect(self, facts: Facts) -> Plan:
        (subject, place), began = self._subject(facts), self._clock()
        tasks = tasks_of(subject.annotations, self._aws)
        await evidence.not_moving(subject, place)
        early = [await _too_early(subject, evidence.no_machines(subject, place))]
        account = await self._account(subject, facts, tasks, recent=False)
        calls = await self._reach.calls(subject.whose(facts.about.source), account=account, paced=True)
        await self._evidence.vpc(subject, calls, self._expected)
        early.append(await _too_early(subject, self._evidence.nothing_runs(subject, calls, apart=apart(tasks))))
        if not any(early):
            self._gates.passed(subject, account, began, apart=apart(tasks))
        owner = Owner(
            whose=calls.whose, account=account, name=subject.name, vpc=subject.vpc, snapshot=self._aws.snapshot_first,
            both={*tasks} >= BOTH, balancers=BALANCERS in tasks, spared=subject.spared, made=subject.made,
            adopted=subject.adopted,
        )  # fmt: skip
        patient = await self._reach.calls(calls.whose, account=account, patient=True)
        # Who plans it again comes back for the same list: what was made since is for the last look.
        finds = await self._finding.find(owner, tasks, patient, name=f"plan {facts.about.deletion}")
        if finds.vague:
            raise Held(f"{vague(finds, subject.called)}; {to_name_vpc(finds, subject)}", evidence.LATER)
        return Plan([*targets_of(finds), self._last(owner, tasks)], "; ".join(filter(None, (*early, remarks(finds)))))

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
        other = await self._namesakes.of(subject, facts.about.source, account, tasks, recent=recent)
        if other is not None:
            why = f" (both are going, but {other.way.why})" if other.way.why else ""
            raise Held(
                f"{other.called} has the same name in its tags ({subject.name}), in the same region and, as far as is "
                f"known, in the same account: what is tagged may be its{why}; {LET_GO}",
                # One that is going may be gone soon; else a person has to do something.
                evidence.AGAIN if other.way.why else evidence.LATER,
                waits=other.way.waits,
            )
        await self._nothing_kept(subject, account)
        return account

    async def _nothing_kept(self, subject: Subject, account: str) -> None:
        """What an earlier object of that name kept carries the same tag."""
        try:
            kept = await self._memory.decisions(f"{PROVIDER}/{account}/{subject.region}", subject.name)
        except Undecodable as error:
            raise Held(str(error), evidence.LATER) from None
        if before := next((one for one in kept if one.uid != subject.uid), None):
            raise Held(f"{before.words}; {LET_GO}", evidence.LATER)

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
