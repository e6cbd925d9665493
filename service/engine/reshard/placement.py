"""Placement of data on shards: maps the name of a key, a set member or an event to its deletion, and so to a shard.
Pure functions of names. What belongs to no deletion stays where it is."""

from collections.abc import Mapping
from typing import Final

from service.engine.keys import Keys

INDEXES: Final = (b"open", b"finished", b"alone", b"dead", b"held", b"waiting", b"newer", b"opening", b"withdrawing")
"""The sorted sets of a shard whose members belong to deletions."""

_HASHES: Final = (b"deletion:", b"job:", b"abandoned:", b"targets:")
_LANE: Final = b"lane:"
_URGENT: Final = b":urgent"
EVENT: Final = b"event:"
"""Prefix of members of `held` and `newer` that name an event which was never planned."""


def is_queue(name: bytes) -> bool:
    return name.startswith(_LANE)


def lane_of(name: bytes) -> bytes:
    """The lane whose queue this key is."""
    return name.removeprefix(_LANE).removesuffix(_URGENT)


class ShardPlacement:
    """Placement for the shard count of `keys`."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys

    def of_hash(self, name: bytes) -> int | None:
        """The shard of a hash with a deletion's record, its jobs, its abandoned jobs or its targets; None for any
        other key."""
        for prefix in _HASHES:
            if name.startswith(prefix):
                return self._keys.shard_of(_deletion_of_job(name.removeprefix(prefix)))
        return None

    def of_member(self, index: bytes, member: bytes) -> int:
        """The shard of a member of an index or of a lane's queue. For events use `of_event`."""
        if index in (b"held", b"waiting", b"newer"):
            _, _, member = member.partition(b":")
        if index == b"opening":
            member = member.rpartition(b"|")[0]
        return self._keys.shard_of(_deletion_of_job(member))

    def of_event(self, fields: Mapping[bytes, bytes], here: int) -> tuple[int, bytes]:
        """The shard of an event, and its deletion where the event names one. The event need not be decodable: newer
        versions use the same field names, and an event that names no object goes to shard `here` modulo the count."""
        parts = [fields.get(name, b"") for name in (b"cluster", b"resource", b"uid")]
        if not all(parts):
            return here % self._keys.shards, b""
        deletion = b"/".join((*parts, fields.get(b"round", b"1")))
        return self._keys.shard_of(deletion), deletion


def _deletion_of_job(job: bytes) -> bytes:
    """The part before the plan's number; the id of a deletion has none."""
    return job.partition(b"#")[0]
