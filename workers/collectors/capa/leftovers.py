"""Resources that the final check found, which its job removes one after another in the lanes of their kinds. A resource
that can't be removed does not block the others: it is skipped and retried after the next list."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import msgspec

from service.contract import Blocked, Gone, Left, Pending, Refused, Verdict
from workers.collectors.capa.claim import OwnerTag
from workers.collectors.capa.kinds import CAPA_KINDS
from workers.collectors.capa.resource_finder import OwnedResource
from workers.providers.aws.due_times import aligned_delay
from workers.providers.aws.errors import AwsError

MAX_LEFTOVERS: Final = 20
"""Resources per list: all of them are stored in the job's record."""

MAX_DOUBLINGS: Final = 6
"""Doublings of the time until the next list while nothing can be removed."""

MAX_REASON: Final = 400
"""Longest stored reason, in characters."""

MAX_LIST_NAMES: Final = 8
"""Names of background lists that a job stores: it may run in any process, and none starts its list twice."""


class Leftover(msgspec.Struct, frozen=True, array_like=True):
    """One resource and the tag that identifies it as the owner's."""

    kind: str
    id: str
    by: OwnerTag = "ccm"


class Leftovers(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """State in the job's `resume`: the resource to remove now and the tag that identifies it; `resume` belongs to the
    kind's own steps. Without an id, something was just removed, and the settle time restarts once nothing is left."""

    kind: str = ""
    id: str = ""
    by: OwnerTag = "ccm"
    resume: str = ""
    # The owner's VPC, which may have been set after the plan.
    vpc: str = ""
    # The other resources of the list, in order.
    rest: tuple[Leftover, ...] = ()
    # Ids that could not be removed, and why: the next list puts them last.
    stuck: tuple[str, ...] = ()
    said: str = ""
    # Consecutive lists after which nothing could be removed.
    idle: int = 0
    # Background lists requested since the last action, by name.
    asked: tuple[str, ...] = ()
    # Nothing was removed so far, so the settle time need not restart.
    first: bool = False

    @property
    def current(self) -> str:
        return f"{self.kind} {self.id}"

    @property
    def text(self) -> str:
        return msgspec.json.encode(self).decode()


_decoder: Final = msgspec.json.Decoder(Leftovers)


def leftovers_of(resume: str) -> Leftovers:
    """State that can't be decoded sends the job back to its list, where nothing is lost."""
    try:
        return _decoder.decode(resume) if resume else Leftovers()
    except msgspec.DecodeError:
        return Leftovers()


def awaiting_list(resume: str, name: str) -> Leftovers:
    """The state with the name of the list to return for. Any other action drops the name."""
    before = leftovers_of(resume)
    asked = (*(one for one in before.asked if one != name), name)[-MAX_LIST_NAMES:]
    return msgspec.structs.replace(before, asked=asked, first=before.first or not resume)


def leftovers_from(owned: Sequence[OwnedResource], before: Leftovers) -> Leftovers:
    """In the order of stages; resources that could not be removed before come last."""

    def place(item: OwnedResource) -> tuple[bool, int, str, str]:
        return item.resource.id in before.stuck, CAPA_KINDS[item.kind.name].stage, item.kind.name, item.resource.id

    stops = [
        Leftover(item.kind.name, item.resource.id, item.claim.by) for item in sorted(owned, key=place)[:MAX_LEFTOVERS]
    ]
    return _starting_with(stops, Leftovers(idle=before.idle + 1, vpc=owned[0].claim.vpc))


class LeftoverLanes:
    """Verdicts that move the job between lanes: `place` is the prefix of all lanes, `home` the lane of the list,
    `period` the shortest time until the next list."""

    def __init__(self, place: str, home: str, period: timedelta) -> None:
        self._place, self._home, self._period = place, home, period

    def remove(self, leftovers: Leftovers, detail: str) -> Pending:
        if leftovers.kind not in CAPA_KINDS:
            return self.list_again(leftovers, detail)
        return Pending(
            timedelta(0),
            detail,
            lane=f"{self._place}/{CAPA_KINDS[leftovers.kind].kind.delete_operation}",
            resume=leftovers.text,
        )

    def list_again(self, leftovers: Leftovers, detail: str) -> Pending:
        """Back to the list, after a delay: if list and read disagree, the job must not loop."""
        again = Leftovers(stuck=leftovers.stuck, idle=leftovers.idle)
        wait = aligned_delay(self._period * 2 ** min(leftovers.idle, MAX_DOUBLINGS), 0.5)
        return Pending(wait, detail, lane=self._home, resume=again.text)

    def to_next(self, leftovers: Leftovers, detail: str) -> Pending:
        """To the next resource, or back to the list."""
        return (
            self.remove(_starting_with(leftovers.rest, leftovers), detail)
            if leftovers.rest
            else self.list_again(leftovers, detail)
        )

    def after_removal(self, leftovers: Leftovers, verdict: Verdict | Exception, before: str) -> Verdict | Exception:
        """Translates the verdict of a removal for the job; `before` is the job's previous verdict."""
        what = leftovers.current
        match verdict:
            case Gone():
                return self.to_next(msgspec.structs.replace(leftovers, idle=0), f"{what} is gone")
            case Pending(check_after, detail, lane, resume, kept):
                going = lane == f"{self._place}/{CAPA_KINDS[leftovers.kind].kind.check_operation}"
                if going and leftovers.rest:
                    # The next list proves it.
                    return self.to_next(msgspec.structs.replace(leftovers, idle=0), f"{what}: {detail}")
                further = msgspec.structs.replace(leftovers, resume=resume, idle=0 if going else leftovers.idle)
                return Pending(check_after, f"{what}: {detail}", lane=lane, resume=further.text, kept=kept)
            case Blocked(by, until, unseen, person):
                again = before == "blocked" and bool(leftovers.stuck)
                return self._stuck(leftovers, by, again=again) or Blocked(
                    _describe(leftovers, by), until, unseen, person
                )
            case Refused(reason):
                # On the second refusal the resource may no longer be the owner's. The list decides.
                return self._stuck(leftovers, reason, again=before == "refused") or Refused(
                    _describe(leftovers, reason)
                )
            case Left(reason):
                # Only this resource is no longer wanted. The list decides about the others.
                return self.to_next(leftovers, f"{what}: {reason}")
            case AwsError():
                again = before == "retry" and bool(leftovers.rest or leftovers.stuck)
                return (self._stuck(leftovers, str(verdict), again=True) if again else None) or verdict
            case _:
                return verdict

    def _stuck(self, leftovers: Leftovers, reason: str, *, again: bool) -> Pending | None:
        """Skips the resource in favour of the others, or leaves it to the next list; None if it is the last one, which
        then waits itself."""
        if not leftovers.rest and not again:
            return None
        stuck = (*(one for one in leftovers.stuck if one != leftovers.id), leftovers.id)[-MAX_LEFTOVERS:]
        said = _describe(leftovers, reason)[:MAX_REASON]
        return self.to_next(msgspec.structs.replace(leftovers, stuck=stuck, said=said), said)


def _starting_with(stops: Sequence[Leftover], leftovers: Leftovers) -> Leftovers:
    first, *rest = stops
    return msgspec.structs.replace(leftovers, kind=first.kind, id=first.id, by=first.by, resume="", rest=tuple(rest))


def _describe(leftovers: Leftovers, reason: str) -> str:
    return f"{leftovers.current}: {reason}" + (f"; and {leftovers.said}" if leftovers.said else "")
