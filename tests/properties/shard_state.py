"""Contents of Redis for one shard, read in one script call and sorted by meaning.

The engine is not involved: the laws look at the keys, as an operator would."""

import json
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from service.engine.clients import RedisClient

# Remembered answers are left out: to remember one is all that a repeated call may do.
_READ = """
local stem, world = ARGV[1], {}
-- The server may give the fields of a hash in another order from one moment to the next.
local function in_order(flat)
  local names, values, sorted = {}, {}, {}
  for i = 1, #flat, 2 do names[#names + 1], values[flat[i]] = flat[i], flat[i + 1] end
  table.sort(names)
  for i, name in ipairs(names) do sorted[2 * i - 1], sorted[2 * i] = name, values[name] end
  return sorted
end
for _, key in ipairs(redis.call('KEYS', stem .. '*')) do
  local name, kind = string.sub(key, #stem + 1), redis.call('TYPE', key)['ok']
  local value
  if not string.find(name, '^:?answer:') then
    if kind == 'hash' then value = in_order(redis.call('HGETALL', key))
    elseif kind == 'zset' then value = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
    elseif kind == 'stream' and name == 'events' then
      local entries, pending, groups = redis.call('XRANGE', key, '-', '+'), {}, redis.pcall('XINFO', 'GROUPS', key)
      if #groups > 0 then
        for i, one in ipairs(redis.call('XPENDING', key, 'planners', '-', '+', 1000)) do pending[i] = one[1] end
      end
      value = {entries, pending, groups}
    elseif kind == 'stream' then
      value = {redis.call('XLEN', key), redis.call('XREVRANGE', key, '+', '-', 'COUNT', 1)}
    else value = redis.call('GET', key) end
    world[#world + 1] = {name, value}
  end
end
return cmsgpack.pack(world)
"""

Scores = dict[str, float]


@dataclass(frozen=True, slots=True)
class StoredStage:
    """A stage as the deletion's record tells it: numbers `first` to `first + size - 1`, then perhaps a successor."""

    number: int
    chain: str
    first: int
    size: int
    successor: int | None


class StoredAppend(NamedTuple):
    """An unfinished append, as the deletion's record tells it. `text` is all of it."""

    plan: str
    job: str
    lane: str
    fence: int
    text: str


class StoredBatch(NamedTuple):
    """Who holds the jobs that were taken together, and until when."""

    worker: str
    end: float


class ShardState:
    """One reading. Two readings are equal when nothing at all has changed between them."""

    def __init__(self, raw: list[tuple[str, Any]]) -> None:
        self.raw: dict[str, Any] = dict(raw)
        self.deletions: dict[str, dict[str, str]] = {}
        self.jobs: dict[str, dict[str, Any]] = {}
        self.plans: set[str] = set()
        self.background: dict[str, Scores] = {}
        self.urgent: dict[str, Scores] = {}
        self.leases: dict[str, Scores] = {}
        self.batches: dict[tuple[str, int], StoredBatch] = {}
        self.entries: dict[str, dict[str, str]] = {}
        self.pending: set[str] = set()
        self.delivered = "0-0"
        for name, value in self.raw.items():
            self._sort_in(name, value)
        self.places: dict[str, list[tuple[str, str]]] = defaultdict(list)
        self._find_places()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShardState) and self.raw == other.raw

    __hash__ = None  # type: ignore[assignment]  # a reading is compared, never looked up

    def scores(self, name: str) -> Scores:
        return _scores(self.raw.get(name, []))

    def fields(self, name: str) -> dict[str, str]:
        return _fields(self.raw.get(name, []))

    def holder(self, lane: str, job: str) -> tuple[int, str] | None:
        """The token under which a job is leased, and by whom."""
        fence = self.leases.get(lane, {}).get(job)
        if fence is None:
            return None
        batch = self.batches.get((lane, int(fence)))
        return int(fence), batch.worker if batch else ""

    @property
    def lanes(self) -> set[str]:
        return {*self.background, *self.urgent, *self.leases}

    def queued(self, lane: str) -> Scores:
        return self.background.get(lane, {}) | self.urgent.get(lane, {})

    @property
    def planned(self) -> dict[str, dict[str, str]]:
        return {deletion: record for deletion, record in self.deletions.items() if "plan" in record}

    def stages(self, deletion: str) -> dict[int, StoredStage]:
        found = {}
        for name, shape in self.deletions[deletion].items():
            if name.startswith("stage."):
                chain, first, size, then = shape.split()
                number = int(name[6:])
                found[number] = StoredStage(number, chain, int(first), int(size), None if then == "-" else int(then))
        return found

    def jobs_of(self, deletion: str, stage: StoredStage) -> list[str]:
        """A job that found late targets belongs to the last stage whose range has its number."""
        plan = self.deletions[deletion]["plan"]
        later = {
            number
            for other in self.stages(deletion).values()
            if other.number > stage.number
            for number in range(other.first, other.first + other.size)
        }
        numbers = range(stage.first, stage.first + stage.size)
        return [f"{deletion}#{plan}.{number}" for number in numbers if number not in later]

    def all_jobs(self, deletion: str) -> list[str]:
        """The jobs of all stages of a planned deletion, in their order."""
        found = [job for stage in self.stages(deletion).values() for job in self.jobs_of(deletion, stage)]
        return sorted(found, key=number_of)

    def unfinished_append(self, deletion: str) -> StoredAppend | None:
        record = self.deletions.get(deletion, {})
        if "appending" not in record or "plan" not in record:
            return None
        plan, append = f"{deletion}#{record['plan']}", json.loads(record["appending"])
        return StoredAppend(plan, f"{plan}.{append['job']}", append["lane"], int(append["fence"]), record["appending"])

    def is_under_way(self, append: StoredAppend) -> bool:
        """Whether its job still has the lease under which it began."""
        return self.leases.get(append.lane, {}).get(append.job) == append.fence

    def identity(self, job: str) -> tuple[str, str, str]:
        return identity_of(self.jobs.get(job, {}))

    def unfinished(self, job: str) -> bool:
        return job in self.jobs and self.jobs[job].get("state", "aside") == "aside"

    def _sort_in(self, name: str, value: Any) -> None:
        kind, _, rest = name.partition(":")
        if kind == "deletion":
            self.deletions[rest] = _fields(value)
        elif kind == "job":
            self.plans.add(rest)
            for number, text in _fields(value).items():
                self.jobs[f"{rest}.{number}"] = json.loads(text)
        elif kind == "lane" and rest.endswith(":urgent"):
            self.urgent[rest.removesuffix(":urgent")] = _scores(value)
        elif kind == "lane":
            self.background[rest] = _scores(value)
        elif kind == "leases":
            self.leases[rest] = _scores(value)
        elif name == "batches":
            for member, end in _scores(value).items():
                fence, lane, worker = member.split()
                self.batches[lane, int(fence)] = StoredBatch(worker, end)
        elif name == "events":
            self.entries = {entry: _fields(flat) for entry, flat in value[0]}
            self.pending = set(value[1])
            for group in value[2]:
                self.delivered = _fields(group)["last-delivered-id"]

    def _find_places(self) -> None:
        for kind, lanes in (("queue", self.background), ("urgent", self.urgent), ("leases", self.leases)):
            for lane, jobs in lanes.items():
                for job in jobs:
                    self.places[job].append((kind, lane))
        for kind in ("alone", "dead"):
            for job in self.scores(kind):
                self.places[job].append((kind, ""))
        for member in self.scores("newer"):
            if member.startswith("job:"):
                self.places[member[4:]].append(("newer", ""))


def number_of(job: str) -> int:
    return int(job.rpartition(".")[2])


def identity_of(record: dict[str, Any]) -> tuple[str, str, str]:
    """What tells two targets apart."""
    return record.get("kind", ""), record.get("target", ""), record.get("incarnation", "")


def _fields(flat: list[Any]) -> dict[str, str]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _scores(flat: list[Any]) -> Scores:
    return {member: float(score) for member, score in zip(flat[::2], flat[1::2], strict=True)}


async def read_keys(client: RedisClient, stem: str) -> list[tuple[str, Any]]:
    """Everything whose name begins so; all of it must lie in the slot of that beginning."""
    found: list[tuple[str, Any]] = msgspec.msgpack.decode(await client.execute_command("EVAL", _READ, 1, stem, stem))
    return found


async def read_shard_state(client: RedisClient, stem: str) -> ShardState:
    return ShardState(await read_keys(client, stem))
