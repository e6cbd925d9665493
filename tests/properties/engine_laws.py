"""The laws of a shard, each checked on one reading of its keys.

The names of the laws are what a planted fault is expected to break.
"""

from collections.abc import Callable
from datetime import timedelta

from tests.properties.history import History
from tests.properties.laws import require
from tests.properties.world import Stage, World

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
WAITS = "a wait is kept"
ZOMBIE = "a zombie changes nothing"
REPEAT = "a repeated call changes nothing and gets the same answer"
ANSWER = "an answer tells what happened"
DONE = "everything published gets done"
CAP = "no lane exceeds its cap"

SLACK = 5.0
"""Milliseconds by which two calls may differ in what they take for the same time."""


def each_job_has_one_place(world: World, _: History) -> None:
    current = set()
    for deletion, record in world.deletions.items():
        if "plan" not in record:
            continue
        for stage in world.stages(deletion).values():
            for position, job in enumerate(world.jobs_of(deletion, stage)):
                current.add(job)
                _check_place(world, record, stage, position, job)
    strays = {job: places for job, places in world.places.items() if job not in current and job in world.jobs}
    require(TWICE, not strays, f"jobs of no flipped plan have a place: {strays}")


def _check_place(world: World, record: dict[str, str], stage: Stage, position: int, job: str) -> None:
    require(LOST, job in world.jobs, f"{job} has no record")
    state, places = world.jobs[job].get("state"), world.places.get(job, [])
    require(TWICE, len(places) <= 1, f"{job} is in {places}")
    if not world.unfinished(job):
        require(TWICE, not places or (places[0][0] == "dead" and state == "dead"), f"{job}, {state}, is in {places}")
        return
    cursor = record.get(f"cursor.{stage.number}")
    if f"opened.{stage.number}" not in record or (cursor is not None and position >= int(cursor)):
        require(ORDER, not places, f"{job} of a stage that is not open is in {places}")
        return
    require(LOST, len(places) == 1, f"{job}, {world.jobs[job]}, is in no place")
    ((kind, lane),) = places
    if kind in ("queue", "urgent"):
        side = "urgent" if world.jobs[job].get("urgent", 1) else "queue"
        require(LOST, kind == side and lane == world.jobs[job]["lane"], f"{job} is in {places}: {world.jobs[job]}")
    if state == "aside":
        require(LOST, kind == "dead", f"{job} is aside and in {places}")
    suspect = world.jobs[job].get("alone") == 1
    require(LOST, suspect or kind != "alone", f"{job} is not to be tried alone and is in {places}")
    require(LOST, not suspect or kind not in ("queue", "urgent"), f"{job} is to be tried alone and is in {places}")


def counts_are_right(world: World, history: History) -> None:
    for deletion, record in world.deletions.items():
        if "plan" not in record:
            continue
        stages = world.stages(deletion)
        jobs = {number: world.jobs_of(deletion, stage) for number, stage in stages.items()}
        for number, names in jobs.items():
            left, unfinished = record.get(f"left.{number}"), sum(map(world.unfinished, names))
            require(COUNTS, left == str(unfinished), f"{deletion}: left.{number} is {left}, unfinished {unfinished}")
        ended = [number for number in stages if f"closed.{number}" in record]
        chains = sum(stages[n].successor is None and n not in ended for n in stages if str(n) != record["release"])
        require(
            COUNTS, record["chains_left"] == str(chains), f"{deletion}: {record['chains_left']} of {chains} chains left"
        )
        for field, state in (("given_up", "dead"), ("abandoned", "abandoned")):
            real = sum(world.jobs[job].get("state") == state for names in jobs.values() for job in names)
            require(
                COUNTS, int(record.get(field, 0)) == real, f"{deletion}: {field} is {record.get(field)}, really {real}"
            )
    _check_stats(world, history)


def _check_stats(world: World, history: History) -> None:
    stats = world.fields("stats")
    for name, number in history.counts.items():
        require(COUNTS, int(stats.get(name, 0)) == number, f"stats {name}: {stats.get(name)}, really {number}")
    require(COUNTS, "lost" not in stats, f"stats lost: {stats.get('lost')}")
    seen = {name[5:].rsplit("/", 1)[0] for name in stats if name.startswith("lane/")}
    for lane in world.lanes | seen:
        for name, real in (("queued", len(world.queued(lane))), ("leased", len(world.leases.get(lane, {})))):
            told = int(stats.get(f"lane/{lane}/{name}", 0))
            require(COUNTS, told == real, f"stats lane/{lane}/{name}: {told}, really {real}")


def stages_open_in_order(world: World, _: History) -> None:
    opening = world.scores("opening")
    for deletion, record in world.deletions.items():
        if "plan" not in record:
            continue
        stages = world.stages(deletion)
        release = int(record["release"])
        before: dict[int, list[Stage]] = {
            stage.successor: [stage] for stage in stages.values() if stage.successor is not None
        }
        before[release] = [stage for stage in stages.values() if stage.number != release]
        for number, earlier in before.items():
            if f"opened.{number}" in record or f"{deletion}|{number}" in opening:
                waiting = [job for stage in earlier for job in world.jobs_of(deletion, stage) if world.unfinished(job)]
                require(ORDER, not waiting, f"{deletion}: stage {number} is open before {waiting}")
        if record["state"] == "done":
            open_jobs = [
                job for stage in stages.values() for job in world.jobs_of(deletion, stage) if world.unfinished(job)
            ]
            require(ORDER, not open_jobs, f"{deletion} is done before {open_jobs}")


def finished_stays_finished(world: World, history: History) -> None:
    opened = world.scores("open")
    placed = {job.rpartition("#")[0] for job, places in world.places.items() if places[0][0] != "dead"}
    for deletion, record in history.finished.items():
        require(
            FINAL,
            world.deletions.get(deletion) == record,
            f"{deletion}: {record} became {world.deletions.get(deletion)}",
        )
        require(FINAL, deletion not in opened, f"{deletion} is {record['state']} and open")
        require(FINAL, deletion not in placed, f"{deletion} is {record['state']} and has a job to be done")
    unfinished = {deletion for deletion in world.deletions if deletion not in history.finished}
    require(FINAL, unfinished == set(opened), f"unfinished are {unfinished}, open are {set(opened)}")


def leases_end(world: World, history: History) -> None:
    """Whoever holds a job is known, and so is when the lease runs out."""
    for lane, leases in world.leases.items():
        for job, fence in leases.items():
            require(
                HOLDERS, (lane, int(fence)) in world.batches, f"nobody knows when the lease of {job} in {lane} ends"
            )
        require(CAP, len(leases) <= history.cap, f"{lane}: {len(leases)} at once")


def lanes_are_scored_in_time(world: World, history: History) -> None:
    scores, dry, paused = world.scores("lanes"), world.fields("dry"), world.fields("paused")
    for lane in world.lanes:
        queued = world.queued(lane)
        if not queued or lane in paused:
            continue
        latest = max(min(queued.values()), float(dry.get(lane, 0)), history.claims.get(lane, 0.0))
        leases = world.leases.get(lane, {})
        if len(leases) >= history.cap:
            latest = max(latest, history.full.get(lane, 0.0))
        score = scores.get(lane)
        require(
            SERVED, score is not None and score <= latest + SLACK, f"{lane} is scored {score}, should be by {latest}"
        )


def published_has_an_entry(world: World, history: History) -> None:
    kept = {name.partition(":")[2] for name in world.raw if name.startswith("kept:")}
    entries = set(world.entries) | kept
    known = {_identity(fields) for fields in world.entries.values()}
    known |= {_identity(world.fields(name)) for name in world.raw if name.startswith("kept:")}
    for deletion, record in world.deletions.items():
        # One that was begun for an old entry has none; the janitor adds it.
        if record.get("state") == "published" and deletion not in history.revived:
            require(EVENTS, record["entry"] in entries or deletion in known, f"{deletion} has no entry: {record}")


def _identity(fields: dict[str, str]) -> str:
    return "/".join(fields.get(name, "") for name in ("cluster", "resource", "uid", "round"))


def nothing_is_left_over(world: World, _: History) -> None:
    owned = {
        f"{deletion}#{record[name]}"
        for deletion, record in world.deletions.items()
        for name in ("plan", "plan_writing")
        if name in record
    }
    require(LEFTOVERS, world.plans <= owned, f"records of jobs that belong to nobody: {world.plans - owned}")
    members = {member for name in ("held", "newer") for member in world.scores(name)}
    for kind in ("kept:", "why:"):
        loose = {name for name in world.raw if name.startswith(kind) and f"event:{name[len(kind) :]}" not in members}
        require(LEFTOVERS, not loose, f"kept for nobody: {loose}")
    for lane, score in world.scores("lanes").items():
        require(LEFTOVERS, bool(world.queued(lane)), f"{lane} is scored {score} and empty")


def held_is_shown(world: World, _: History) -> None:
    shown, dead = world.scores("held"), world.scores("dead")
    for deletion, record in world.deletions.items():
        require(HELD, (f"deletion:{deletion}" in shown) == (record.get("state") == "held"), f"{deletion}: {record}")
    for job, record in world.jobs.items():
        if f"job:{job}" in shown:
            fits = world.unfinished(job) and (record.get("held") == 1 or job in dead)
            require(HELD, fits, f"{job} is shown as held: {record}")
        else:
            require(
                HELD, record.get("held") != 1 or not world.unfinished(job), f"{job} is held and not shown: {record}"
            )
    gone = {member for member in shown if member.startswith("job:") and member[4:] not in world.jobs}
    require(HELD, not gone, f"shown as held and gone: {gone}")


def waits_are_kept(world: World, _: History) -> None:
    for lane in world.lanes:
        for job, score in world.queued(lane).items():
            due = world.jobs.get(job, {}).get("due", 0)
            require(WAITS, score >= due, f"{job} is due {due} and scored {score}")


LAWS: tuple[Callable[[World, History], None], ...] = (
    each_job_has_one_place,
    finished_stays_finished,
    stages_open_in_order,
    counts_are_right,
    leases_end,
    lanes_are_scored_in_time,
    published_has_an_entry,
    held_is_shown,
    waits_are_kept,
    nothing_is_left_over,
)

LONG = timedelta(hours=2)
"""Longer than any lease, wait or recheck of the machine."""
