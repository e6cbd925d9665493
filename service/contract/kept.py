"""What a person decided to keep: the targets of a deletion that were abandoned.
They stay where they are: nothing finds, waits for or removes them again on behalf of that deletion."""

from typing import Final

import msgspec

from service.contract.jobs import Record


class Abandoned(msgspec.Struct, frozen=True):
    """Jobs of one deletion that a person gave up. `unknown` counts those whose record no longer names its target: any
    resource may be the one that was meant."""

    jobs: tuple[Record, ...] = ()
    unknown: int = 0

    def covers(self, kind: str, target: str) -> bool:
        return bool(self.unknown) or any((job.kind, job.target) == (kind, target) for job in self.jobs)


NOTHING_ABANDONED: Final = Abandoned()
