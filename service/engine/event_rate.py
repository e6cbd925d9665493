"""Rate limit of Kubernetes Events by object and reason, shared by all replicas.
It is a key that expires; if Redis is lost, an Event is posted once more."""

from datetime import timedelta

from service.engine.installation import Installation
from service.engine.script_arguments import ms


def reported_key(installation: Installation, deletion: str, uid: str, what: str) -> str:
    """A key in the shard of the deletion."""
    return f"{installation.shard_of(deletion).stem}told:{uid}:{what}"


async def may_post_event(installation: Installation, deletion: str, uid: str, reason: str, every: timedelta) -> bool:
    """True where no Event with this reason was posted for the object within `every`. The caller is then expected to
    post it."""
    if not every:
        return True
    key = reported_key(installation, deletion, uid, f"event:{reason}")
    return bool(await installation.caller.command("SET", key, "1", "NX", "PX", ms(every)))
