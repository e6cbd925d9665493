"""Names of the keys in Redis.

Every key of a shard has the shard's hash tag and every key of a budget its place, so that a script uses one slot.
"""

import zlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one installation; `prefix` separates installations on the same server."""

    prefix: str = "knell"
    shards: int = 1

    def stem(self, shard: int) -> str:
        return f"{self.prefix}:{{{shard}}}:"

    def of(self, shard: int, name: str) -> str:
        return self.stem(shard) + name

    def budget(self, place: str) -> str:
        return f"{self.prefix}:budget:{{{place}}}"

    def shard_of(self, deletion: str | bytes) -> int:
        """The shard that holds a deletion and all its jobs."""
        name = deletion.encode() if isinstance(deletion, str) else deletion
        return zlib.crc32(name) % self.shards


def deletion_of(job: str) -> str:
    """The deletion that a job's id begins with."""
    return job.rsplit("#", 1)[0]
