"""What each lane of a kind draws on: the call that it is named for, and the reads that come before it.
A lane is named aws/ACCOUNT/REGION/OPERATION; which kind's job stands in it makes no difference to what it draws."""

from collections import Counter
from datetime import timedelta
from functools import lru_cache
from typing import Final

from msgspec.structs import replace

from service.contract import Draw
from workers.handlers.aws.kinds import KINDS
from workers.handlers.aws.limits import limits_of
from workers.handlers.aws.model import PROVIDER, Kind

GATHERED: Final = timedelta(seconds=2)
"""Where a bucket of changes is empty, so long is gathered what flows into it: the reads that come before many changes
are then made once for all of them."""


def _calls(kind: Kind) -> dict[str, Counter[str]]:
    """By lane: the calls that one job makes when nothing is in its way."""
    lanes = {
        kind.operation: Counter((kind.operation, *kind.reads, *kind.looks)),
        kind.checking: Counter((kind.checking,)),
    }
    for operation, step in kind.steps.items():
        reads = (*kind.reads, *step.reads) if step.judged else step.reads
        lanes[operation] = lanes.get(operation, Counter()) | Counter((operation, *reads))
    return lanes


_LANES: Final[dict[str, Counter[str]]] = {}
for _kind in KINDS:
    for _operation, _counted in _calls(_kind).items():
        _LANES[_operation] = _LANES.get(_operation, Counter()) | _counted


@lru_cache(maxsize=4096)
def lane_draws(lane: str) -> tuple[Draw, ...] | None:
    """None where it is no lane of a kind."""
    parts = lane.split("/")
    if len(parts) != 4 or parts[0] != PROVIDER or parts[3] not in _LANES:
        return None
    _, _, region, operation = parts
    drawn: dict[str, Draw] = {}
    for one in _LANES[operation].elements():
        for draw in limits_of(region, one):
            before = drawn.get(draw.limit.name)
            drawn[draw.limit.name] = draw if before is None else replace(draw, cost=draw.cost + before.cost)
    if not operation.partition(".")[2].startswith("Describe"):
        own = limits_of(region, operation)[0].limit
        together = max(1.0, round(own.capacity * (GATHERED / own.per)))
        # On every limit: served one by one for want of another, jobs would each read for themselves, and want the more.
        return tuple(replace(draw, together=together) for draw in drawn.values())
    return tuple(drawn.values())
