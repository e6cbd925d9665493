"""Laws of a shard, each checked on one reading of its keys; violations are yielded with the name of the law.

A planted fault names the laws that it is expected to break."""

import json
from collections.abc import Callable, Iterator

from service.contract import FINALLY
from tests.properties.history import History, late_count
from tests.properties.shard_state import ShardState, StoredStage, identity_of, number_of

LOST = "no job is lost"
TWICE = "no job is in two places"
COUNTS = "counts are right"
ORDER = "a stage never opens early"
FINAL = "a finished deletion never reopens"
HOLDERS = "a leased job has a holder and an end"
WHOLE = "a batch is lost as a whole or not at all"
SERVED = "a lane is served when its first job is due"
EVENTS = "no event is lost"
LEFTOVERS = "nothing is left over"
HELD = "what is held is shown as held"
SINCE = "what is held as before is held since then"
WAITS = "a wait is kept"
ZOMBIE = "a zombie changes nothing"
REPEAT = "a repeated call changes nothing and gets the same answer"
ANSWER = "an answer tells what happened"
DONE = "everything published gets done"
CAP = "no lane exceeds its cap"
LATE = "no late target is lost"
LATE_TWICE = "no target is added twice"
KNOWN = "a target that the deletion has is not added"
AFTER = "a job that found targets comes after them"
RELEASED = "the release comes after the job that found targets"
BOUNDS = "no more is found late than the bounds allow"
MISPLACED = "only a job of the last chain finds targets"
BUSY = "an append that is under way is not disturbed"
WITHDRAWN = "a withdrawn deletion takes no late targets, and ends those that it has"
WORD = "a person's word concerns what is held and nothing else"

SLACK = 5.0
"""Milliseconds by which two calls may differ in what they take for the same time."""

Breach = tuple[str, str]


def each_job_has_one_place(shard: ShardState, _: History) -> Iterator[Breach]:
    current = set()
    for deletion, record in shard.planned.items():
        for stage in shard.stages(deletion).values():
            for job in shard.jobs_of(deletion, stage):
                current.add(job)
                if job not in shard.jobs:
                    yield LOST, f"{job} has no record"
                elif shard.jobs[job]["stage"] != stage.number:
                    yield LOST, f"{job} is not in stage {stage.number}: {shard.jobs[job]}"
                else:
                    yield from _place(shard, record, stage, number_of(job) - stage.first, job)
    for job, places in shard.places.items():
        if job in shard.jobs and job not in current:
            yield TWICE, f"{job} of no flipped plan is in {places}"


def _place(shard: ShardState, record: dict[str, str], stage: StoredStage, position: int, job: str) -> Iterator[Breach]:
    told, places = shard.jobs[job], shard.places.get(job, [])
    kinds = {kind for kind, _ in places}
    cursor = record.get(f"cursor.{stage.number}")
    if len(places) > 1:
        yield TWICE, f"{job} is in {places}"
    elif not shard.unfinished(job):
        if places and (told["state"], kinds) != ("dead", {"dead"}):
            yield TWICE, f"{job} is {told['state']} and in {places}"
    elif f"opened.{stage.number}" not in record or (cursor is not None and position >= int(cursor)):
        if places:
            yield ORDER, f"{job} of a stage that is not open is in {places}"
    elif not places:
        yield LOST, f"{job} is in no place: {told}"
    elif told.get("state") == "aside" and kinds != {"dead"}:
        yield LOST, f"{job} is set aside and in {places}"
    elif kinds & {"queue", "urgent"}:
        side = "urgent" if told.get("urgent", 1) else "queue"
        if places != [(side, told["lane"])] or told.get("alone"):
            yield LOST, f"{job} does not belong into {places}: {told}"
    elif kinds == {"alone"} and not told.get("alone"):
        yield LOST, f"{job} is not to be tried alone: {told}"


def counts_are_right(shard: ShardState, history: History) -> Iterator[Breach]:
    for deletion, record in shard.planned.items():
        stages = shard.stages(deletion)
        jobs = {number: shard.jobs_of(deletion, stage) for number, stage in stages.items()}
        for number, names in jobs.items():
            unfinished = sum(map(shard.unfinished, names))
            if record.get(f"left.{number}") != str(unfinished):
                yield COUNTS, f"{deletion}: {unfinished} are left of stage {number}: {record}"
        open_ends = [
            stage
            for number, stage in stages.items()
            if stage.successor is None and str(number) != record["release"] and f"closed.{number}" not in record
        ]
        if record["chains_left"] != str(len(open_ends)):
            yield COUNTS, f"{deletion}: {len(open_ends)} chains are left: {record}"
        for field, state in (("given_up", "dead"), ("abandoned", "abandoned")):
            real = sum(shard.jobs[job].get("state") == state for names in jobs.values() for job in names)
            if field == "abandoned":
                # And by plans before this one.
                plan = f"{deletion}#{record['plan']}."
                real += sum(not job.startswith(plan) for job in shard.fields(f"abandoned:{deletion}"))
            if int(record.get(field, 0)) != real:
                yield COUNTS, f"{deletion}: {real} are {state}: {record}"
    yield from _stats(shard, history)


def _stats(shard: ShardState, history: History) -> Iterator[Breach]:
    stats = shard.fields("stats")
    expected = dict(history.counts) if history.lost else {**history.counts, "lost": 0}
    for name, number in expected.items():
        if int(stats.get(name, 0)) != number:
            yield COUNTS, f"stats {name}: {stats.get(name)}, really {number}"
    seen = {name[5:].rsplit("/", 1)[0] for name in stats if name.startswith("lane/")}
    for lane in shard.lanes | seen:
        for name, real in (("queued", len(shard.queued(lane))), ("leased", len(shard.leases.get(lane, {})))):
            if int(stats.get(f"lane/{lane}/{name}", 0)) != real:
                yield COUNTS, f"stats lane/{lane}/{name}: {stats.get(f'lane/{lane}/{name}')}, really {real}"


def stages_open_in_order(shard: ShardState, _: History) -> Iterator[Breach]:
    opening = shard.scores("opening")
    for deletion, record in shard.planned.items():
        stages, release = shard.stages(deletion), int(record["release"])
        before = {stage.successor: [stage] for stage in stages.values() if stage.successor is not None}
        before[release] = [stage for stage in stages.values() if stage.number != release]
        finale = min((stage.number for stage in stages.values() if stage.chain == FINALLY), default=release)
        before[finale] = [stage for stage in stages.values() if stage.number < finale]
        if record["state"] == "done":
            before[-1] = list(stages.values())
        for number, earlier in before.items():
            waiting = [job for stage in earlier for job in shard.jobs_of(deletion, stage) if shard.unfinished(job)]
            begun = number == -1 or f"opened.{number}" in record or f"{deletion}|{number}" in opening
            if begun and waiting:
                yield ORDER, f"{deletion}: stage {number} is open before {waiting}: {record}"


def late_targets_keep_their_order(shard: ShardState, history: History) -> Iterator[Breach]:
    with_late = {deletion: record for deletion, record in shard.planned.items() if "late" in record}
    for deletion, record in with_late.items():
        jobs, release = shard.all_jobs(deletion), int(record["last"].split()[0])
        late = [job for job in jobs if number_of(job) > release]
        planned = {shard.identity(job) for job in jobs if number_of(job) <= release}
        before = {
            identity_of(json.loads(text))
            for job, text in shard.fields(f"abandoned:{deletion}").items()
            if not job.startswith(f"{deletion}#{record['plan']}.")
        }
        seen = set[tuple[str, str, str]]()
        for job in late:
            identity = shard.identity(job)
            if identity in planned | before:
                yield KNOWN, f"{job} is {identity}, which the deletion has"
            if identity in seen:
                yield LATE_TWICE, f"{job} is {identity}, which was added before"
            seen.add(identity)
        yield from _finders(shard, history, deletion, jobs)


def _finders(shard: ShardState, history: History, deletion: str, jobs: list[str]) -> Iterator[Breach]:
    """Every job that found late targets waits for these, and the release for all of it."""
    record, opening = shard.deletions[deletion], shard.scores("opening")
    begun = {number for number in shard.stages(deletion) if f"opened.{number}" in record}
    begun |= {number for number in shard.stages(deletion) if f"{deletion}|{number}" in opening}
    for job in jobs:
        found = history.found.get(job, set())
        if lost := found - set(jobs):
            yield LATE, f"{job} found {lost}, which the deletion does not have"
        open_ones = sorted(one for one in found if shard.unfinished(one))
        # A target that found something itself is moved as well, perhaps behind this job.
        if set(open_ones) - set(history.found) and (
            shard.places.get(job) or shard.jobs.get(job, {}).get("stage") in begun
        ):
            yield AFTER, f"{job} is to be tried before {open_ones}: {record}"
        if found and (open_ones or shard.unfinished(job)) and int(record["release"]) in begun:
            yield RELEASED, f"the release is open before {job}: {record}"


def late_targets_stay_within_their_bounds(shard: ShardState, history: History) -> Iterator[Breach]:
    for deletion, record in shard.planned.items():
        release = int(record["last"].split()[0])
        late = [job for job in shard.all_jobs(deletion) if number_of(job) > release]
        stages = [number for number in shard.stages(deletion) if number > int(record["release"])]
        if len(late) > history.bounds.targets or len(stages) > history.bounds.stages:
            yield BOUNDS, f"{deletion}: {late} in the stages {stages}, of at most {history.bounds}"


def late_stages_are_in_the_last_chain(shard: ShardState, _: History) -> Iterator[Breach]:
    for deletion in shard.planned:
        stages = shard.stages(deletion)
        for stage in stages.values():
            if stage.successor is not None and stages[stage.successor].chain != stage.chain:
                yield MISPLACED, f"{deletion}: {stages[stage.successor]} follows {stage}"


def an_append_is_not_disturbed(_: ShardState, history: History) -> Iterator[Breach]:
    for deletion in history.disturbed:
        yield BUSY, f"{deletion}: the job that appended has its lease, and its append is over or another one"


def a_withdrawn_deletion_ends(shard: ShardState, history: History) -> Iterator[Breach]:
    for deletion, record in shard.planned.items():
        late = history.withdrawn.get(f"{deletion}#{record['plan']}")
        if late is not None and late_count(record) != late:
            yield WITHDRAWN, f"{deletion} was withdrawn with {late} and has {late_count(record)}"
        if late is not None and record["state"] == "running" and "withdrawing" not in record:
            jobs = [job for job in shard.all_jobs(deletion) if shard.unfinished(job)]
            if going := [job for job in jobs if shard.jobs[job]["stage"] != int(record["release"])]:
                yield WITHDRAWN, f"{deletion} was withdrawn, and {going} are not cancelled: {record}"


def finished_stays_finished(shard: ShardState, history: History) -> Iterator[Breach]:
    opened = set(shard.scores("open"))
    busy = {job.rpartition("#")[0] for job in shard.jobs if shard.places.get(job, [("dead", "")])[0][0] != "dead"}
    for deletion, record in history.finished.items():
        # A leftover entry may come back to the stream, and is noted; it is acked when it is read. How far a withdrawal
        # came is forgotten.
        now = shard.deletions.get(deletion, {}) | {"entry": record["entry"]}
        if {**now, "withdrawing": ""} != {**record, "withdrawing": ""}:
            yield FINAL, f"{deletion}: {record} became {now}"
        if deletion in busy:
            yield FINAL, f"{deletion} is {record['state']} and has a job to be done"
    unfinished = set(shard.deletions) - set(history.finished)
    if unfinished != opened:
        yield FINAL, f"unfinished are {unfinished}, open are {opened}"


def leases_end(shard: ShardState, history: History) -> Iterator[Breach]:
    """Whoever holds a job is known, and so is when the lease runs out."""
    for lane, leases in shard.leases.items():
        for job, fence in leases.items():
            if (lane, int(fence)) not in shard.batches:
                yield HOLDERS, f"the lease of {job} in {lane} has no known end"
        if len(leases) > history.cap:
            yield CAP, f"{lane}: {len(leases)} at once"


def lanes_are_scored_in_time(shard: ShardState, history: History) -> Iterator[Breach]:
    scores, dry, paused = shard.scores("lanes"), shard.fields("dry"), shard.fields("paused")
    for lane in shard.lanes:
        queued = shard.queued(lane)
        if not queued or lane in paused:
            continue
        latest = max(min(queued.values()), float(dry.get(lane, 0)), history.claims.get(lane, 0.0))
        if len(shard.leases.get(lane, {})) >= history.cap:
            latest = max(latest, history.full.get(lane, 0.0))
        if scores.get(lane, float("inf")) > latest + SLACK:
            yield SERVED, f"{lane} is scored {scores.get(lane)}, should be by {latest}"


def published_has_an_entry(shard: ShardState, history: History) -> Iterator[Breach]:
    kept = {name[5:]: shard.fields(name) for name in shard.raw if name.startswith("kept:")}
    known = {_identity(fields) for fields in (*shard.entries.values(), *kept.values())}
    for deletion, record in shard.deletions.items():
        there = record["entry"] in shard.entries or record["entry"] in kept or deletion in known
        # One that was begun for an old entry has none; the janitor adds it.
        if record["state"] == "published" and not there and deletion not in history.revived:
            yield EVENTS, f"{deletion} has no entry: {record}"


def _identity(fields: dict[str, str]) -> str:
    return "/".join(fields.get(name, "") for name in ("cluster", "resource", "uid", "round"))


def nothing_is_left_over(shard: ShardState, _: History) -> Iterator[Breach]:
    owned = {
        f"{deletion}#{record[name]}"
        for deletion, record in shard.deletions.items()
        for name in ("plan", "plan_writing")
        if name in record
    }
    for plan in shard.plans - owned:
        yield LEFTOVERS, f"records of jobs without a deletion: {plan}"
    for plan in {name.partition(":")[2] for name in shard.raw if name.startswith("targets:")} - owned:
        yield LEFTOVERS, f"an index without a deletion: {plan}"
    members = {*shard.scores("held"), *shard.scores("newer")}
    for deletion, record in shard.planned.items():
        plan = f"{deletion}#{record['plan']}"
        beyond = {job for job in shard.jobs if job.startswith(f"{plan}.")} - set(shard.all_jobs(deletion))
        if beyond and "appending" not in record:
            yield LEFTOVERS, f"records of an append that is over: {sorted(beyond)}"
    for name in shard.raw:
        kind, entry = name.split(":", 1) if ":" in name else (name, "")
        if kind in ("kept", "why") and f"event:{entry}" not in members:
            yield LEFTOVERS, f"kept for no deletion: {name}"
    for lane, score in shard.scores("lanes").items():
        if not shard.queued(lane):
            yield LEFTOVERS, f"{lane} is scored {score} and empty"


def held_is_shown(shard: ShardState, history: History) -> Iterator[Breach]:
    for index in ("held", "waiting"):
        yield from _shown(shard, history, index)


def _shown(shard: ShardState, history: History, index: str) -> Iterator[Breach]:
    shown, dead = shard.scores(index), shard.scores("dead")
    for deletion, record in shard.deletions.items():
        if (f"deletion:{deletion}" in shown) != (record["state"] == index):
            yield HELD, f"{deletion}: {record}, shown as {index} are {list(shown)}"
    for job, told in shard.jobs.items():
        held = shard.unfinished(job) and told.get(index) == 1
        aside = shard.unfinished(job) and job in dead and index == "held"
        if f"job:{job}" in shown and not held and not aside:
            yield HELD, f"{job} is shown as {index}: {told}"
        # A job that was set aside while it waited is shown as held; its record is not changed.
        if f"job:{job}" not in shown and held and not (job in dead and index == "waiting"):
            yield HELD, f"{job} is {index} and not shown: {told}"
    for member in shown:
        if member.startswith("job:") and member[4:] not in shard.jobs and not history.lost:
            yield HELD, f"{member} is shown as {index} and gone"


def held_since_it_began(shard: ShardState, history: History) -> Iterator[Breach]:
    for deletion, record in shard.deletions.items():
        before, now = history.since.get(deletion), (record.get("held_as", ""), record.get("held_since", ""))
        if before and before[0] == now[0] and before != now:
            yield SINCE, f"{deletion} is {now}, and was {before}"


def waits_are_kept(shard: ShardState, _: History) -> Iterator[Breach]:
    for lane in shard.lanes:
        for job, score in shard.queued(lane).items():
            due = shard.jobs.get(job, {}).get("due", 0)
            if score < due:
                yield WAITS, f"{job} is due {due} and scored {score}"


LAWS: tuple[Callable[[ShardState, History], Iterator[Breach]], ...] = (
    late_targets_keep_their_order,
    late_targets_stay_within_their_bounds,
    late_stages_are_in_the_last_chain,
    an_append_is_not_disturbed,
    a_withdrawn_deletion_ends,
    each_job_has_one_place,
    finished_stays_finished,
    stages_open_in_order,
    counts_are_right,
    leases_end,
    lanes_are_scored_in_time,
    published_has_an_entry,
    held_is_shown,
    held_since_it_began,
    waits_are_kept,
    nothing_is_left_over,
)
