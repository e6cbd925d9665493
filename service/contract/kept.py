"""What a person decided to keep: by a tag on the resource, or by abandoning its job.
It stays where it is: nothing finds, waits for or removes it again. Names of tags have a slash on AWS; Azure allows none
there, so that its names are the same with an underscore."""

from typing import Final

import msgspec

from service.contract.jobs import Record

PREVENT_DELETE_TAG: Final = "knell.dev/prevent-delete"
"""A person's: `true` on a resource keeps it, whoever it belongs to, until it is taken off. It is never written or taken
off by the service."""

RETAINED_TAG: Final = "knell.dev/retained"
"""The service's own: it keeps what was retained, abandoned or dropped with an object, which its value names."""


def is_protection(value: str) -> bool:
    """Whether a value of the person's tag keeps a resource: any that does not plainly say no."""
    return value.lower() not in ("", "false")


class Abandoned(msgspec.Struct, frozen=True):
    """Jobs of one deletion that a person gave up. `unknown` counts those whose record no longer names its target: any
    resource may be the one that was meant."""

    jobs: tuple[Record, ...] = ()
    unknown: int = 0

    def covers(self, kind: str, target: str) -> bool:
        return bool(self.unknown) or any((job.kind, job.target) == (kind, target) for job in self.jobs)


NOTHING_ABANDONED: Final = Abandoned()
