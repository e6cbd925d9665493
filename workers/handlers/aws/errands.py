"""What the last look of a deletion is sent for: one resource after another, in the lanes of their kinds, and back.
One that is in the way of nobody but itself does not hide the others: it is passed over, and tried again by the next
list."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final, Literal

import msgspec

from service.contract import Blocked, Gone, Left, Pending, Refused, Verdict
from workers.handlers.aws.errors import AwsError
from workers.handlers.aws.finding import KIND, Claim
from workers.handlers.aws.rounds import until_round

MOST: Final = 20
"""Resources of one errand: all of it is kept in the job's record."""

IDLE: Final = 6
"""Doublings of the time until the next list, while nothing can be removed."""

LONGEST: Final = 400
"""Characters of what is kept of the reasons why something stayed."""

PROCESSES: Final = 8
"""Whose lists a job remembers to have asked for: any of them may have it next, and none begins its list twice."""

By = Literal["ccm", "lbc"]


class Stop(msgspec.Struct, frozen=True, array_like=True):
    """One resource, and by which tag it is the owner's."""

    kind: str
    id: str
    by: By = "ccm"


class Errand(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the job is about to remove, and by which tag it is the owner's; `resume` belongs to the kind's own steps.
    Without an id: it has just removed something, and the settle time begins anew once nothing is left."""

    kind: str = ""
    id: str = ""
    by: By = "ccm"
    resume: str = ""
    # The owner's VPC, which a person may have named only after the plan.
    vpc: str = ""
    # What the list named beside it, in order.
    rest: tuple[Stop, ...] = ()
    # What could not be removed on this way, by id, and the reasons: the next list puts it last.
    stuck: tuple[str, ...] = ()
    said: str = ""
    # Lists in a row after which nothing could be removed.
    idle: int = 0
    # Lists that go on, by the names under which they were asked for since anything was done.
    asked: tuple[str, ...] = ()
    # Nothing was removed on this look, so that nothing has to settle anew.
    first: bool = False

    @property
    def what(self) -> str:
        return f"{self.kind} {self.id}"

    @property
    def text(self) -> str:
        return msgspec.json.encode(self).decode()


_errand: Final = msgspec.json.Decoder(Errand)


def errand_of(resume: str) -> Errand:
    """What can't be read sends the job back to its list, where it loses nothing."""
    try:
        return _errand.decode(resume) if resume else Errand()
    except msgspec.DecodeError:
        return Errand()


def awaiting(resume: str, name: str) -> Errand:
    """What it was sent for, and the list for which it comes back. Whatever else it does, it asks anew afterwards."""
    before = errand_of(resume)
    asked = (*(one for one in before.asked if one != name), name)[-PROCESSES:]
    return msgspec.structs.replace(before, asked=asked, first=before.first or not resume)


def sent_for(claims: Sequence[Claim], before: Errand) -> Errand:
    """In the order of stages, but what stayed the last time comes last, lest it keep all others waiting."""

    def place(claim: Claim) -> tuple[bool, int, str, str]:
        return claim.found.id in before.stuck, claim.kind.stage, claim.kind.name, claim.found.id

    stops = [Stop(claim.kind.name, claim.found.id, claim.owner.by) for claim in sorted(claims, key=place)[:MOST]]
    return _at(stops, Errand(idle=before.idle + 1, vpc=claims[0].owner.vpc))


class Way:
    """Where errands go: `place` is the front of all lanes, `home` the lane of the list, `round` the least time until
    the next one."""

    def __init__(self, place: str, home: str, period: timedelta) -> None:
        self._place, self._home, self._period = place, home, period

    def to(self, errand: Errand, detail: str) -> Pending:
        if errand.kind not in KIND:
            return self.back(errand, detail)
        return Pending(timedelta(0), detail, lane=f"{self._place}/{KIND[errand.kind].operation}", resume=errand.text)

    def back(self, errand: Errand, detail: str) -> Pending:
        """To the list, after a round: should list and read ever see different things, they do not chase each other."""
        again = Errand(stuck=errand.stuck, idle=errand.idle)
        wait = until_round(self._period * 2 ** min(errand.idle, IDLE), 0.5)
        return Pending(wait, detail, lane=self._home, resume=again.text)

    def onward(self, errand: Errand, detail: str) -> Pending:
        """To the next that the list named, or back to it."""
        return self.to(_at(errand.rest, errand), detail) if errand.rest else self.back(errand, detail)

    def carried(self, errand: Errand, verdict: Verdict | Exception, before: str) -> Verdict | Exception:
        """What a removal found, as it is for the job that ran the errand; `before` is the job's last verdict."""
        what = errand.what
        match verdict:
            case Gone():
                return self.onward(msgspec.structs.replace(errand, idle=0), f"{what} is gone")
            case Pending(check_after, detail, lane, resume, kept):
                going = lane == f"{self._place}/{KIND[errand.kind].checking}"
                if going and errand.rest:
                    # The next list is the proof.
                    return self.onward(msgspec.structs.replace(errand, idle=0), f"{what}: {detail}")
                further = msgspec.structs.replace(errand, resume=resume, idle=0 if going else errand.idle)
                return Pending(check_after, f"{what}: {detail}", lane=lane, resume=further.text, kept=kept)
            case Blocked(by, until, unseen, person):
                again = before == "blocked" and bool(errand.stuck)
                return self._stuck(errand, by, again=again) or Blocked(_words(errand, by), until, unseen, person)
            case Refused(reason):
                # By the second time it may be nobody's errand any more: another's by now, say. The list tells.
                return self._stuck(errand, reason, again=before == "refused") or Refused(_words(errand, reason))
            case Left(reason):
                # One resource is not wanted any more, which says nothing of the others. The list asks what still is.
                return self.onward(errand, f"{what}: {reason}")
            case AwsError():
                again = before == "retry" and bool(errand.rest or errand.stuck)
                return (self._stuck(errand, str(verdict), again=True) if again else None) or verdict
            case _:
                return verdict

    def _stuck(self, errand: Errand, reason: str, *, again: bool) -> Pending | None:
        """Passed over for the others, or left to the next list; None where it is the last and waits for itself."""
        if not errand.rest and not again:
            return None
        stuck = (*(one for one in errand.stuck if one != errand.id), errand.id)[-MOST:]
        said = _words(errand, reason)[:LONGEST]
        return self.onward(msgspec.structs.replace(errand, stuck=stuck, said=said), said)


def _at(stops: Sequence[Stop], errand: Errand) -> Errand:
    first, *rest = stops
    return msgspec.structs.replace(errand, kind=first.kind, id=first.id, by=first.by, resume="", rest=tuple(rest))


def _words(errand: Errand, reason: str) -> str:
    return f"{errand.what}: {reason}" + (f"; and {errand.said}" if errand.said else "")
