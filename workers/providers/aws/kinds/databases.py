"""What RDS instances and clusters have in common: deletion protection, and the final snapshot, which AWS takes as a
part of the deletion. It holds the last state of the data; one that is taken before would lack what is written until
the deletion begins. Its name is recorded before the call, so that no crash loses it, and a deletion is done only once
the resource is absent and that snapshot is available."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final, NamedTuple

import msgspec

from service.contract import Blocked, Pending, Refused, Verdict
from workers.providers.aws.client.paging import require_list
from workers.providers.aws.due_times import aligned_delay
from workers.providers.aws.errors import AwsError
from workers.providers.aws.kinds.declaration import AbsentResource, AwsAttempt
from workers.providers.aws.kinds.deletion_protection import DeletionProtection
from workers.providers.aws.kinds.snapshots import is_wanted
from workers.providers.aws.model import AwsClient
from workers.removal import RemovalProgress

MAX_UNSEEN: Final = 5
"""Reads after which a final snapshot that is not listed counts as missing."""

CHECK_AGAIN: Final = timedelta(seconds=5)
"""Between reads of a final snapshot that is not complete. AWS usually shows the resource as long as it is made."""

_FAILED_STATES: Final = frozenset({"failed", "incompatible-network", "incompatible-restore"})
"""States in which AWS takes no final snapshot."""


class DatabaseFacts(NamedTuple):
    """`copy_of` says where the data of one that can have no final snapshot is, and `no_snapshot` why there can be none
    of data that is nowhere else. `members` are the instances of a cluster that must be deleted before it."""

    incarnation: str
    protected: bool
    copy_of: str = ""
    no_snapshot: str = ""
    members: tuple[str, ...] = ()


class DatabaseState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """State of a job: how often deletion protection was switched off, and the name of the final snapshot."""

    lifted: int = 0
    snapshot: str = ""

    @property
    def text(self) -> str:
        return msgspec.json.encode(self).decode() if self != DatabaseState() else ""


_decoder: Final = msgspec.json.Decoder(DatabaseState)


def state_of(resume: str) -> DatabaseState:
    """Raises msgspec.DecodeError: without its state it is unknown whether a final snapshot must exist."""
    return _decoder.decode(resume) if resume else DatabaseState()


def lifts_of(resume: str) -> int:
    return state_of(resume).lifted


def with_lifts(resume: str, count: int) -> str:
    return msgspec.structs.replace(state_of(resume), lifted=count).text


def no_snapshot_in(state: str, engine: str) -> str:
    """Why there can be no final snapshot."""
    if state in _FAILED_STATES:
        return f"it is {state}"
    return f"its engine is {engine}" if engine.startswith("custom-") else ""


@dataclass(frozen=True, slots=True)
class DatabaseRemoval:
    """Operations of instances, or of clusters: in snake case the SDK's, else those of lanes. `id` is the argument for
    their identifier; `snapshots` is the list in the response of `read_snapshot`, and `snapshot_id` the argument for an
    identifier there. `owner_id` is the field of a snapshot with the incarnation that it is of."""

    delete_lane: str
    check_lane: str
    delete_call: str
    id: str
    read_snapshot: str
    snapshots: str
    snapshot_id: str
    owner_id: str
    protection: DeletionProtection

    async def precheck(self, attempt: AwsAttempt) -> Verdict | None:
        facts: DatabaseFacts = attempt.resource.facts
        if facts.members:
            return Blocked(f"cluster {attempt.resource.id} has instances: {', '.join(facts.members)}")
        if facts.protected:
            return self.protection.verdict(attempt, "DeletionProtection is on")
        return self._require_recorded_name(attempt, facts)

    def _require_recorded_name(self, attempt: AwsAttempt, facts: DatabaseFacts) -> Verdict | None:
        """None if the job's record says which final snapshot the deletion takes, or that it takes none."""
        state, name = state_of(attempt.resume), ""
        if is_wanted(attempt) and not facts.copy_of:
            if facts.no_snapshot:
                return Blocked(
                    f"a final snapshot of {attempt.resource.id} is wanted, and can't be taken: {facts.no_snapshot}; "
                    f"mend that, or switch aws.snapshot_first off; `knell jobs abandon` leaves it where it is",
                    person=True,
                )
            name = _snapshot_name(attempt)
        if name == state.snapshot:
            return None
        state = msgspec.structs.replace(state, snapshot=name)
        words = f"its final snapshot will be {name}" if name else "no final snapshot is wanted"
        return attempt.move_to(self.delete_lane, words, resume=state.text)

    async def delete(self, attempt: AwsAttempt) -> Verdict:
        facts: DatabaseFacts = attempt.resource.facts
        name = state_of(attempt.resume).snapshot
        final: dict[str, Any] = {"SkipFinalSnapshot": True}
        words = f"deleted without a final snapshot: {facts.copy_of}" if facts.copy_of else "deleted"
        if name:
            final = {"SkipFinalSnapshot": False, "FinalDBSnapshotIdentifier": name}
            words = f"deleted with the final snapshot {name}"
        try:
            await attempt.client.call("rds", self.delete_call, **{self.id: attempt.resource.id}, **final)
        except AwsError as error:
            if error.code not in ("DBSnapshotAlreadyExists", "DBClusterSnapshotAlreadyExistsFault"):
                raise
            # An earlier call took it, and the deletion did not happen: it lacks what was written since.
            return Blocked(f"{error}: delete that snapshot, or rename it, to have another one taken", person=True)
        progress = RemovalProgress(facts.incarnation, attempt.progress.deletes + 1, state=attempt.resume)
        after = aligned_delay(attempt.settings.check_after, 0.5)
        return replace(attempt, progress=progress).move_to(self.check_lane, words, after=after, resume=attempt.resume)

    async def check_absent(
        self, client: AwsClient, absent: Sequence[AbsentResource]
    ) -> Mapping[str, Verdict | Exception]:
        found = dict[str, Verdict | Exception]()
        for one in absent:
            try:
                verdict = await self._require_snapshot(client, one)
            except (AwsError, msgspec.DecodeError) as error:
                found[one.job.id] = error
            else:
                if verdict is not None:
                    found[one.job.id] = verdict
        return found

    async def _require_snapshot(self, client: AwsClient, absent: AbsentResource) -> Verdict | None:
        """None once the final snapshot is complete, if there is to be one."""
        target, job = absent.job.target, absent.job
        name = state_of(absent.progress.state).snapshot
        if not name:
            return None
        try:
            answer = await client.call("rds", self.read_snapshot, **{self.snapshot_id: name})
        except AwsError as error:
            if error.what != "gone":
                raise
            if job.record.waits < MAX_UNSEEN:
                return Blocked(f"{target} is gone, and its final snapshot {name} is not visible yet", unseen=True)
            return Refused(
                f"{target} is gone, and its final snapshot {name} does not exist: someone else deleted one of them; "
                f"`knell jobs abandon` releases the object"
            )
        (snapshot,) = require_list(answer, self.snapshots, "rds", self.read_snapshot)
        owner, expected = snapshot.get(self.owner_id) or "", absent.progress.incarnation
        if owner and expected and owner != expected:
            return Refused(f"{target} is gone, and the snapshot {name} is of another one ({owner}, not {expected})")
        match snapshot.get("Status") or "":
            case "available":
                return None
            case "creating":
                done = snapshot.get("PercentProgress") or 0
                words = f"{target} is gone, and its final snapshot {name} is being made ({done}%)"
                return Pending(CHECK_AGAIN, words, resume=job.resume)
            case other:
                return Refused(
                    f"{target} is gone, and its final snapshot {name} is {other or 'in an unknown state'}; `knell jobs "
                    f"abandon` releases the object"
                )


def _snapshot_name(attempt: AwsAttempt) -> str:
    """The same for every attempt at the same deletion call; a further call after one that had no effect gets another
    name, because AWS does not overwrite a snapshot."""
    facts: DatabaseFacts = attempt.resource.facts
    about = f"{attempt.job.deletion} {facts.incarnation} {attempt.progress.deletes}"
    return f"knell-{attempt.resource.id}-{hashlib.sha256(about.encode()).hexdigest()[:16]}"
