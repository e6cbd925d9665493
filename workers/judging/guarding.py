"""Whether the guard of a source lets an object go, for who looks at it on behalf of another deletion.
It counts as it does for its own planner: an object that is going meets the guard sooner or later, and counts once."""

from collections.abc import Awaitable, Callable

from service.engine.guard import Going, Guard
from service.settings import Settings


def guarded_by(guard: Guard, settings: Settings) -> Callable[[str, str, int], Awaitable[str]]:
    """Asked for a source, a uid and the milliseconds since which it is going: why it is held, empty where it is not."""

    async def why(source: str, uid: str, since: int) -> str:
        (admission,) = await guard.admit(source, [Going(uid, since)], settings.sources[source].guard)
        return "" if admission.admitted else admission.reason

    return why
