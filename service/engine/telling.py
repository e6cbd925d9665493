"""How often an object's people are told the same in their own cluster: by all replicas together, over restarts too.
The key runs out by itself; a lost Redis costs one Event more."""

from datetime import timedelta

from service.engine.installation import Installation
from service.engine.rows import ms


def told_key(installation: Installation, deletion: str, uid: str, what: str) -> str:
    """Beside the deletion's record."""
    return f"{installation.shard_of(deletion).stem}told:{uid}:{what}"


async def first_to_tell(installation: Installation, deletion: str, uid: str, reason: str, every: timedelta) -> bool:
    """Whether nobody posted an Event with this reason for the object within `every`; who asks is then taken at his
    word."""
    if not every:
        return True
    key = told_key(installation, deletion, uid, f"event:{reason}")
    return bool(await installation.caller.command("SET", key, "1", "NX", "PX", ms(every)))
