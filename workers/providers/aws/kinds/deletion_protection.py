"""Deletion protection that AWS offers for a resource. It blocks the deletion, and is switched off first, in a step of
its own, only if the settings allow it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from service.contract import Blocked, Refused, Verdict
from workers.providers.aws.due_times import aligned_delay
from workers.providers.aws.kinds.declaration import AwsAttempt, KindStep

MAX_LIFTS: Final = 2
"""How often the protection is switched off before an operator is asked: another controller may set it again."""

LAG_ROUNDS: Final = 3
"""Rounds in which AWS may still report a protection that was switched off."""

SETTING: Final = "lift_deletion_protection"


def _count_of(resume: str) -> int:
    return int(resume) if resume.isdecimal() else 0


def _with_count(_resume: str, count: int) -> str:
    return str(count)


@dataclass(frozen=True, slots=True)
class DeletionProtection:
    """`lift` is the operation that switches it off, `delete` that of the deletion; `name` is what AWS calls it, and
    `switch_off` makes the call. `count` reads from the state of a job how often it was switched off so far, and
    `counted` writes that."""

    lift: str
    delete: str
    name: str
    switch_off: Callable[[AwsAttempt], Awaitable[None]]
    count: Callable[[str], int] = _count_of
    counted: Callable[[str, int], str] = _with_count

    @property
    def step(self) -> KindStep:
        return KindStep(run=self._lift, setting=SETTING)

    def verdict(self, attempt: AwsAttempt, said: str) -> Verdict:
        """For an attempt that it keeps from its call; `said` is what AWS says."""
        record, lifted = attempt.job.record, self.count(attempt.resume)
        if attempt.settings.lift_deletion_protection:
            if lifted and record.waits < LAG_ROUNDS and record.verdict != "refused":
                return Blocked(
                    f"its deletion protection was lifted, and AWS still says: {said}",
                    until=aligned_delay(attempt.settings.check_after, 0.5),
                )
            # After a refusal it is retried at the interval of refused jobs.
            if lifted < MAX_LIFTS or record.verdict == "refused":
                return attempt.move_to(
                    self.lift, f"its deletion protection is to be lifted: {said}", resume=attempt.resume
                )
            return Refused(
                f"{attempt.resource.id} has deletion protection again, although it was lifted {lifted} times: find out "
                f"who sets {self.name} there; AWS says: {said}"
            )
        return Refused(
            f"{attempt.resource.id} has deletion protection: switch {self.name} off there, or let Knell do it (setting "
            f"aws.{SETTING}); AWS says: {said}"
        )

    async def _lift(self, attempt: AwsAttempt) -> Verdict:
        if not attempt.settings.lift_deletion_protection:
            return attempt.move_to(
                self.delete, "its deletion protection is not to be lifted any more", resume=attempt.resume
            )
        await attempt.clear()
        await self.switch_off(attempt)
        lifted = min(self.count(attempt.resume) + 1, MAX_LIFTS)
        state = self.counted(attempt.resume, lifted)
        return attempt.move_to(self.delete, "its deletion protection is lifted", resume=state)
