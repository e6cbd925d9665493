"""The memory of what people decided to keep, as the records in Redis have it."""

from service.contract import Undecodable
from service.contract.jobs import Record, decode_record
from service.contract.kept import NOTHING_ABANDONED, Abandoned
from service.stream.installation import Installation

STEP = 500
"""Jobs in one round trip."""


class KeptMemory:
    """Implements the memory that collectors and handlers ask."""

    def __init__(self, installation: Installation) -> None:
        self._installation, self._caller = installation, installation.caller

    async def abandoned(self, deletion: str) -> Abandoned:
        """Asked of the deletion's own record, so that it is as durable as the deletion itself."""
        shard = self._installation.shard_of(deletion)
        ((plan, count),) = await shard.recall([deletion], ("plan", "abandoned"))
        if not plan or count in ("", "0"):
            return NOTHING_ABANDONED
        found, unknown, cursor = list[Record](), 0, b"0"
        while True:
            key = f"{shard.stem}job:{deletion}#{plan}"
            cursor, page = await self._caller.command("HSCAN", key, cursor, "COUNT", STEP)
            for raw in page.values() if isinstance(page, dict) else page[1::2]:
                # Most jobs were not abandoned: those are not even decoded.
                if b'"abandoned"' not in raw:
                    continue
                try:
                    record = decode_record(raw)
                except Undecodable:
                    unknown += 1
                else:
                    found += [record] if record.state == "abandoned" else []
            if int(cursor) == 0:
                return Abandoned(tuple(found), unknown)
