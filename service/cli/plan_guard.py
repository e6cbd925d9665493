"""What `knell plan` tells of the guard: whether it would hold this deletion now, and how much of its window is taken.
It is not asked as a planner asks it, which would count."""

from typing import Any

from rich.text import Text

from service.cli import output
from service.cli.objects import Chosen
from service.engine.guard import Going
from service.engine.installation import Installation
from service.engine.views.outlook import Outlook, outlook
from service.policy.decisions import Decision
from service.settings.durations import write


async def look(installation: Installation, one: Chosen) -> Outlook:
    # Made once and without patience: a server that is not there is said at once.
    await installation.connections.client.execute_command("PING")
    return await outlook(installation, one.source, Going(one.live.uid, one.live.deleting), one.settings.guard)


def picture(guard: Outlook | None, decision: Decision) -> dict[str, Any] | None:
    """None where nobody could ask. What is retained is let go without asking the guard."""
    if guard is None:
        return None
    found: dict[str, Any] = {name: getattr(guard, name) for name in guard.__struct_fields__ if name != "source"}
    asked = guard.limit is not None and decision.kind != "retain"
    return {**found, "asked": asked, "holds": guard.holds and asked, "says": _words(guard, asked=asked)}


def shown(guard: dict[str, Any] | None) -> Text:
    if guard is None:
        return Text("not known: Redis does not answer", style="yellow")
    return Text(output.clean(guard["says"]), style="yellow" if guard["holds"] else "")


def _words(guard: Outlook, *, asked: bool) -> str:
    if guard.limit is None:
        return "is off"
    if not asked:
        return "is not asked: nothing outside would be removed"
    taken = f"{guard.counted} of {guard.limit} deletions within {write(guard.window)} are counted"
    if guard.holds and guard.tripped is not None:
        return f"would hold it, tripped since {output.moment(guard.tripped)}, {taken}; {guard.why}"
    if guard.holds:
        return f"would trip and hold it, {taken}; {guard.why}"
    return f"has let it through already, {taken}" if guard.passed else f"would let it through, {taken}"
