"""Addresses of deletions, jobs and held entries on the command line: KIND/NAME with -n, an id, or a prefix of it.
An ambiguous address is an error that lists the matches, each with an address of its own. Open deletions win over
finished ones; commands that give something up are `strict`: they refuse an address that matches several objects."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NamedTuple

import click

from service.cli import output, session
from service.cli.table_layout import shortened
from service.contract.kept import KeepDecision
from service.contract.resource_names import fits_kind, full_kind, qualified, short_kind
from service.contract.targets import RELEASE
from service.engine.batch_reads import server_ms
from service.engine.installation import Installation
from service.engine.views.deletions import DeletionView, deletion_details, one_deletion
from service.engine.views.held import KINDS, shards_holding
from service.engine.views.jobs import JobView, job_views
from service.engine.views.search import DeletionQuery, find_deletions, held_jobs
from service.watching.cluster_identity import ClusterIdentities

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
    """`job` is PLAN.NUMBER of one job; `cluster` is a name of the settings or a cluster's uid."""

    what: str
    namespace: str | None = None
    cluster: str | None = None
    job: str = ""

    def __str__(self) -> str:
        job = f"#{self.job}" if self.job else ""
        inside = f" in namespace {self.namespace}" if self.namespace else ""
        return output.clean(f"{self.what}{job}{inside}")

    @property
    def split_job(self) -> "Address":
        """The same address with `#PLAN.NUMBER` moved from `what` to `job`."""
        found = _JOB.fullmatch(self.what)
        return replace(self, what=found[1], job=found[2]) if found else self

    @property
    def object(self) -> tuple[str, str] | None:
        """Kind and name, or None for an id."""
        kind, slash, name = self.what.partition("/")
        return (kind, name) if slash and kind and name and "/" not in name else None


class AddressMatch(NamedTuple):
    """One match of an address; `ways` are addresses of it, the best one first."""

    id: str
    ways: Sequence[str]
    description: str


def address_argument(metavar: str = "KIND/NAME|ID", *, required: bool = True) -> Callable[[Any], Any]:
    """The address argument with its options; the command gets `what`, `namespace` and `cluster`."""

    def added(command: Callable[..., Any]) -> Callable[..., Any]:
        where = "Its cluster, by name or uid; needed only where several have such an object."
        command = click.option("--cluster", metavar="NAME", help=where)(command)
        inside = "Namespace of the object; needed only where several have one of that name."
        command = click.option("--namespace", "-n", help=inside)(command)
        return click.argument("what", metavar=metavar, required=required)(command)

    return added


def short_ids(uids: Iterable[str]) -> dict[str, str]:
    """The shortest unique prefix of each uid in a table. Uids of orphans share long prefixes: they have no short id
    and are addressed by kind and name."""
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
    """In the notation of `kubectl -o name`, which every command accepts."""
    return f"{full_kind(resource)}/{name}"


# ---- deletions


async def find_deletion(installation: Installation, address: Address) -> str:
    """The id of the addressed deletion. Raises CommandError if there is none, InvalidUsage if there are several."""
    found = await _deletions(installation, address)
    if not found:
        raise session.CommandError(_not_found("deletion", address))
    if len(found) > 1:
        raise ambiguous_address(address, [_deletion_match(address, view) for view in found])
    return found[0].id


async def _deletions(installation: Installation, address: Address, *, strict: bool = False) -> list[DeletionView]:
    cluster = await _cluster_uid(installation, address.cluster)
    if _ID.fullmatch(address.what):
        view = await one_deletion(installation, address.what)
        found = [] if view is None else [view]
        return [
            view for view in found if address.namespace in (None, view.namespace) and cluster in (None, view.cluster)
        ]
    if address.object is not None:
        kind, name = address.object
        sought = DeletionQuery(kind=kind, name=name, namespace=address.namespace, cluster=cluster)
    elif "/" in address.what:
        return []
    else:
        sought = DeletionQuery(uid=address.what, namespace=address.namespace, cluster=cluster)
    under_way = await _find(installation, sought, "open")
    if not strict:
        return under_way or await _find(installation, sought, "finished")
    every = under_way + await _find(installation, sought, "finished")
    if len({view.uid for view in every}) > 1:
        raise ambiguous_address(
            address, [_deletion_match(address, view) for view in {view.uid: view for view in every}.values()]
        )
    return under_way or every


async def _find(
    installation: Installation, sought: DeletionQuery, among: Literal["open", "finished"]
) -> list[DeletionView]:
    """An exact uid wins over longer ones with that prefix; a prefix has a minimum length."""
    found = await find_deletions(installation, sought, among)
    exact = [view for view in found if view.uid == sought.uid]
    return exact or (found if not sought.uid or len(sought.uid) >= _FEWEST else [])


async def _cluster_uid(installation: Installation, cluster: str | None) -> str | None:
    if cluster is None:
        return None
    declared = installation.settings.clusters.get(cluster)
    if declared is not None and declared.uid is not None:
        return declared.uid
    return (await ClusterIdentities(installation.settings, installation).remembered()).get(cluster, cluster)


# ---- jobs


async def find_job(installation: Installation, address: Address, *, strict: bool = False) -> str:
    """The id of the addressed job. The number may be left out if the deletion has one job under way."""
    split_job = address.split_job
    if split_job.job and _ID.fullmatch(split_job.what) and address.namespace is None and address.cluster is None:
        return address.what
    found = await _deletions(installation, split_job, strict=strict)
    if not found:
        raise session.CommandError(_not_found("job", address))
    if len(found) > 1:
        raise ambiguous_address(address, [_deletion_match(split_job, view) for view in found])
    view = found[0]
    if split_job.job:
        return f"{view.id}#{split_job.job}"
    details = await deletion_details(installation, view.id, limit=_SHOWN + 2)
    under_way = [job for job in details.jobs if not job.ended] if details is not None else []
    # The release comes after all other jobs.
    under_way = [job for job in under_way if job.kind != RELEASE] or under_way
    if not under_way:
        raise session.CommandError(
            f"no job of {address} is under way; `knell deletions show` shows those that have ended"
        )
    if len(under_way) > 1:
        raise ambiguous_address(address, [_job_match(split_job, view, job) for job in under_way], of=view.left)
    return under_way[0].id


# ---- held entries


async def find_held(installation: Installation, address: Address, *, strict: bool = False) -> str:
    """The name of the addressed held entry: `event:`, `deletion:` or `job:` with its id."""
    kind, colon, identity = address.what.partition(":")
    if not colon or kind not in KINDS:
        kind, identity = "", address.what
    split_job = replace(address, what=identity).split_job
    if kind and (kind == "event" or _ID.fullmatch(split_job.what)):
        return address.what
    found = list[AddressMatch]()
    if _ENTRY.fullmatch(identity) and not kind and await shards_holding(installation, f"event:{identity}"):
        found.append(AddressMatch(f"event:{identity}", [f"event:{identity}"], "an event"))
    for view in await _deletions(installation, split_job, strict=strict):
        whole = f"deletion:{view.id}"
        if kind != "job" and not split_job.job and await shards_holding(installation, whole):
            found.append(_deletion_match(split_job, view)._replace(id=whole))
        if kind != "deletion":
            found += await _held_jobs(installation, split_job, view)
    if not found:
        raise session.CommandError(f"{address} is not held (any more); `knell held list` shows what is")
    if len(found) > 1:
        raise ambiguous_address(address, found)
    return found[0].id


async def _held_jobs(installation: Installation, address: Address, view: DeletionView) -> list[AddressMatch]:
    ids = [job for job in await held_jobs(installation, view.id) if address.job in ("", job.rpartition("#")[2])]
    shard = installation.shards[view.shard]
    jobs = await job_views(shard, ids, await server_ms(shard)) if ids else []
    return [_job_match(address, view, job)._replace(id=f"job:{job.id}") for job in jobs]


# ---- kept resources


def fits_decision(address: Address, decision: KeepDecision) -> bool:
    """Whether the decision to keep something is about the addressed object."""
    if address.namespace not in (None, decision.namespace):
        return False
    if address.object is not None:
        kind, name = address.object
        return fits_kind(kind, decision.resource) and name == decision.object_name
    return decision.uid == address.what or (len(address.what) >= _FEWEST and decision.uid.startswith(address.what))


# ---- messages


def _deletion_match(address: Address, view: DeletionView) -> AddressMatch:
    job = f"#{address.job}" if address.job else ""
    inside = f" -n {view.namespace}" if view.namespace else ""
    ways = [f"{view.uid[:_SHORT]}{job}", f"{view.uid}{job}", f"{view.id}{job}"]
    if address.object is not None:
        named = [f"{kind(view.resource)}/{view.name}{job}{inside}" for kind in (short_kind, full_kind)]
        ways = [*named, *ways]
    about = f"{short_kind(view.resource)} {qualified(view.namespace, view.name)}"
    return AddressMatch(view.id, ways, f"{about}, {view.state} {view.held_why}")


def _job_match(address: Address, view: DeletionView, job: JobView) -> AddressMatch:
    ways = _deletion_match(replace(address, job=job.id.rpartition("#")[2]), view).ways
    return AddressMatch(job.id, ways, f"{job.kind} {job.target}, {job.state}, {job.reason}".rstrip(", "))


def ambiguous_address(address: Address, found: Sequence[AddressMatch], *, of: int = 0) -> session.InvalidUsage:
    """Lists each match with the first of its `ways` that no other match has."""
    used = Counter(way for one in found for way in dict.fromkeys(one.ways))
    ways = [next((way for way in one.ways if used[way] == 1), one.ways[-1]) for one in found[:_SHOWN]]
    widest = max(map(len, ways))
    lines = [
        f"  {way:{widest}}  {shortened(output.clean(one.description), max(20, _WIDTH - widest - 4))}"
        for way, one in zip(ways, found, strict=False)
    ]
    number = max(of, len(found))
    more = [f"  and {number - _SHOWN} more"] if number > _SHOWN else []
    return session.InvalidUsage("\n".join([f"{address} could be any of {number}; type one of these:", *lines, *more]))


def _not_found(what: str, address: Address) -> str:
    if address.split_job.object is None:
        return f"no {what} {address} is known (finished ones expire); `knell {what}s list` shows those that are"
    return (
        f"no {what} of {address} is known: it is not being deleted, or that ended long ago; "
        f"`knell {what}s list` shows those that are"
    )
