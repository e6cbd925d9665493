"""Addresses of deletions, jobs and held entries as an operator types them: KIND/NAME with -n, an id, or its start.
Every command finds what is meant here. An address that could mean two things is never guessed at: the answer lists them
and what to type for each. For a command that shows or tries again, one that fits a deletion under way means that one,
although finished ones fit as well. For one that gives something up (`certain`) no other object may fit at all."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NamedTuple

import click

from service.cli import output, session
from service.cli.columns import shortened
from service.contract.kept import Decision
from service.contract.resource_names import fits_kind, full_kind, qualified, short_kind
from service.contract.targets import RELEASE
from service.engine.installation import Installation
from service.engine.views.deletions import DeletionView, one_deletion, story
from service.engine.views.finding import Sought, find_deletions, held_jobs
from service.engine.views.held import KINDS, shards_with
from service.engine.views.jobs import JobView, describe
from service.engine.views.reading import server_ms
from service.watching.clusters import Identities

_SHORT: Final = 8
_LONGEST_SHORT: Final = 12
_FEWEST: Final = 4
_SHOWN: Final = 10
_WIDTH: Final = 78
_ID: Final = re.compile(r"[^/#]+/[^/#]+/[^/#]+/\d+")
_JOB: Final = re.compile(r"(.+)#(\d+\.\d+)")
_ENTRY: Final = re.compile(r"\d+-\d+")


@dataclass(frozen=True, slots=True)
class Address:
    """What was typed. `job` is PLAN.NUMBER of one job, and `cluster` a name of the settings or a cluster's uid."""

    what: str
    namespace: str | None = None
    cluster: str | None = None
    job: str = ""

    def __str__(self) -> str:
        job = f"#{self.job}" if self.job else ""
        inside = f" in namespace {self.namespace}" if self.namespace else ""
        return output.clean(f"{self.what}{job}{inside}")

    @property
    def parted(self) -> "Address":
        """With the job apart from the deletion."""
        found = _JOB.fullmatch(self.what)
        return replace(self, what=found[1], job=found[2]) if found else self

    @property
    def object(self) -> tuple[str, str] | None:
        """Kind and name, where these were typed."""
        kind, slash, name = self.what.partition("/")
        return (kind, name) if slash and kind and name and "/" not in name else None


class Candidate(NamedTuple):
    """One thing that may be meant; `ways` are what to type for it, the best one first."""

    id: str
    ways: Sequence[str]
    told: str


def address_argument(metavar: str = "KIND/NAME|ID", *, required: bool = True) -> Callable[[Any], Any]:
    """The address, with the options that say where; the command gets `what`, `namespace` and `cluster`."""

    def added(command: Callable[..., Any]) -> Callable[..., Any]:
        where = "Its cluster, by name or uid; needed only where several have such an object."
        command = click.option("--cluster", metavar="NAME", help=where)(command)
        inside = "Namespace of the object; needed only where several have one of that name."
        command = click.option("--namespace", "-n", help=inside)(command)
        return click.argument("what", metavar=metavar, required=required)(command)

    return added


def short_ids(uids: Iterable[str]) -> dict[str, str]:
    """The start of each uid that tells it from the others in a table. Those of orphans begin alike and are long: they
    have none, and are addressed by kind and name."""
    known, found = sorted(set(uids)), dict[str, str]()
    for place, uid in enumerate(known):
        beside = known[max(0, place - 1) : place] + known[place + 1 : place + 2]
        length = _SHORT
        while length < len(uid) and any(other[:length] == uid[:length] for other in beside):
            length += 1
        if min(length, len(uid)) <= _LONGEST_SHORT:
            found[uid] = uid[:length]
    return found


def kind_and_name(resource: str, name: str) -> str:
    """As `kubectl -o name` writes it, which every command takes."""
    return f"{full_kind(resource)}/{name}"


# ---- deletions


async def find_deletion(installation: Installation, address: Address) -> str:
    """The id of the deletion that is meant; Trouble or Misuse where there is none, or more than one."""
    found = await _deletions(installation, address)
    if not found:
        raise session.Trouble(_unknown("deletion", address))
    if len(found) > 1:
        raise ambiguous(address, [_candidate(address, view) for view in found])
    return found[0].id


async def _deletions(installation: Installation, address: Address, *, certain: bool = False) -> list[DeletionView]:
    cluster = await _cluster_uid(installation, address.cluster)
    if _ID.fullmatch(address.what):
        view = await one_deletion(installation, address.what)
        found = [] if view is None else [view]
        return [
            view for view in found if address.namespace in (None, view.namespace) and cluster in (None, view.cluster)
        ]
    if address.object is not None:
        kind, name = address.object
        sought = Sought(kind=kind, name=name, namespace=address.namespace, cluster=cluster)
    elif "/" in address.what:
        return []
    else:
        sought = Sought(uid=address.what, namespace=address.namespace, cluster=cluster)
    under_way = await _find(installation, sought, "open")
    if not certain:
        return under_way or await _find(installation, sought, "finished")
    every = under_way + await _find(installation, sought, "finished")
    if len({view.uid for view in every}) > 1:
        raise ambiguous(address, [_candidate(address, view) for view in {view.uid: view for view in every}.values()])
    return under_way or every


async def _find(installation: Installation, sought: Sought, among: Literal["open", "finished"]) -> list[DeletionView]:
    """A whole uid comes before others that begin with it, and the start of one has some characters at least."""
    found = await find_deletions(installation, sought, among)
    exact = [view for view in found if view.uid == sought.uid]
    return exact or (found if not sought.uid or len(sought.uid) >= _FEWEST else [])


async def _cluster_uid(installation: Installation, cluster: str | None) -> str | None:
    if cluster is None:
        return None
    declared = installation.settings.clusters.get(cluster)
    if declared is not None and declared.uid is not None:
        return declared.uid
    return (await Identities(installation.settings, installation).remembered()).get(cluster, cluster)


# ---- jobs


async def find_job(installation: Installation, address: Address, *, certain: bool = False) -> str:
    """The id of the job that is meant: of a deletion with one job under way it need not be said which."""
    parted = address.parted
    if parted.job and _ID.fullmatch(parted.what) and address.namespace is None and address.cluster is None:
        return address.what
    found = await _deletions(installation, parted, certain=certain)
    if not found:
        raise session.Trouble(_unknown("job", address))
    if len(found) > 1:
        raise ambiguous(address, [_candidate(parted, view) for view in found])
    view = found[0]
    if parted.job:
        return f"{view.id}#{parted.job}"
    told = await story(installation, view.id, limit=_SHOWN + 2)
    under_way = [job for job in told.jobs if not job.ended] if told is not None else []
    # The release waits for all others.
    under_way = [job for job in under_way if job.kind != RELEASE] or under_way
    if not under_way:
        raise session.Trouble(f"no job of {address} is under way; `knell deletions show` shows those that have ended")
    if len(under_way) > 1:
        raise ambiguous(address, [_job_candidate(parted, view, job) for job in under_way], of=view.left)
    return under_way[0].id


# ---- what is held


async def find_held(installation: Installation, address: Address, *, certain: bool = False) -> str:
    """The name of the held entry that is meant, as `event:`, `deletion:` or `job:` with its id."""
    kind, colon, identity = address.what.partition(":")
    if not colon or kind not in KINDS:
        kind, identity = "", address.what
    parted = replace(address, what=identity).parted
    if kind and (kind == "event" or _ID.fullmatch(parted.what)):
        return address.what
    found = list[Candidate]()
    if _ENTRY.fullmatch(identity) and not kind and await shards_with(installation, f"event:{identity}"):
        found.append(Candidate(f"event:{identity}", [f"event:{identity}"], "an event"))
    for view in await _deletions(installation, parted, certain=certain):
        whole = f"deletion:{view.id}"
        if kind != "job" and not parted.job and await shards_with(installation, whole):
            found.append(_candidate(parted, view)._replace(id=whole))
        if kind != "deletion":
            found += await _held_jobs(installation, parted, view)
    if not found:
        raise session.Trouble(f"{address} is not held (any more); `knell held list` shows what is")
    if len(found) > 1:
        raise ambiguous(address, found)
    return found[0].id


async def _held_jobs(installation: Installation, address: Address, view: DeletionView) -> list[Candidate]:
    ids = [job for job in await held_jobs(installation, view.id) if address.job in ("", job.rpartition("#")[2])]
    shard = installation.shards[view.shard]
    jobs = await describe(shard, ids, await server_ms(shard)) if ids else []
    return [_job_candidate(address, view, job)._replace(id=f"job:{job.id}") for job in jobs]


# ---- what was kept


def fits_decision(address: Address, decision: Decision) -> bool:
    """Whether the object that something was kept with is the one that was typed."""
    if address.namespace not in (None, decision.namespace):
        return False
    if address.object is not None:
        kind, name = address.object
        return fits_kind(kind, decision.resource) and name == decision.object_name
    return decision.uid == address.what or (len(address.what) >= _FEWEST and decision.uid.startswith(address.what))


# ---- what to say


def _candidate(address: Address, view: DeletionView) -> Candidate:
    job = f"#{address.job}" if address.job else ""
    inside = f" -n {view.namespace}" if view.namespace else ""
    ways = [f"{view.uid[:_SHORT]}{job}", f"{view.uid}{job}", f"{view.id}{job}"]
    if address.object is not None:
        named = [f"{kind(view.resource)}/{view.name}{job}{inside}" for kind in (short_kind, full_kind)]
        ways = [*named, *ways]
    about = f"{short_kind(view.resource)} {qualified(view.namespace, view.name)}"
    return Candidate(view.id, ways, f"{about}, {view.state} {view.held_why}")


def _job_candidate(address: Address, view: DeletionView, job: JobView) -> Candidate:
    ways = _candidate(replace(address, job=job.id.rpartition("#")[2]), view).ways
    return Candidate(job.id, ways, f"{job.kind} {job.target}, {job.state}, {job.reason}".rstrip(", "))


def ambiguous(address: Address, found: Sequence[Candidate], *, of: int = 0) -> session.Misuse:
    """Each with the first of its ways that means no other."""
    used = Counter(way for one in found for way in dict.fromkeys(one.ways))
    ways = [next((way for way in one.ways if used[way] == 1), one.ways[-1]) for one in found[:_SHOWN]]
    widest = max(map(len, ways))
    lines = [
        f"  {way:{widest}}  {shortened(output.clean(one.told), max(20, _WIDTH - widest - 4))}"
        for way, one in zip(ways, found, strict=False)
    ]
    number = max(of, len(found))
    more = [f"  and {number - _SHOWN} more"] if number > _SHOWN else []
    return session.Misuse("\n".join([f"{address} could be any of {number}; type one of these:", *lines, *more]))


def _unknown(what: str, address: Address) -> str:
    if address.parted.object is None:
        return f"no {what} {address} is known (finished ones expire); `knell {what}s list` shows those that are"
    return (
        f"no {what} of {address} is known: it is not being deleted, or that ended long ago; "
        f"`knell {what}s list` shows those that are"
    )
