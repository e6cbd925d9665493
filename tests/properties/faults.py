"""Faults to be planted in the Lua scripts, each with the laws that it breaks.

Each replaces a text in a Lua file; one whose text no longer exists there fails."""

from dataclasses import dataclass

from service.engine.script_loading import Scripts, lua_text
from tests.properties import budget_machine as budget
from tests.properties import engine_laws as laws
from tests.properties import spending_log


@dataclass(frozen=True, slots=True)
class Fault:
    """In `script` the text `old` becomes `new`; one of `breaks` must be found, the first is what it is meant for.

    Where the whole machine takes long to come across it, `focus` names the actions that it is left with.
    """

    name: str
    script: str
    old: str
    new: str
    breaks: tuple[str, ...]
    focus: tuple[str, ...] = ()

    def scripts(self) -> Scripts:
        text = lua_text(self.script)
        assert self.old in text, f"{self.script}.lua has no {self.old!r} any more: plant the fault elsewhere"
        return Scripts(changed={self.script: text.replace(self.old, self.new)})


REMEMBERED = "if repeated then return repeated end"

FINDS = ("publish", "plan", "find_late", "append_on", "die_while_appending", "work_on")

WITHIN_BOUNDS = ("set_bounds", "find_side_by_side", "find_late")

ENGINE = (
    Fault("a job whose worker died is not put back", "reclaim", "redis.call('ZADD', stem .. 'alone', now, job)", "",
          (laws.LOST,)),
    Fault("a job that waits is not put back", "settle",
          "enter(job, item[10] ~= '' and item[10] or lane, item[9] == 1, due)", "", (laws.LOST,)),
    Fault("a taken job stays in its lane", "take", "redis.call('ZREMRANGEBYRANK', queue, 0, #ids - 1)", "",
          (laws.TWICE,)),
    Fault("a settled job stays leased", "settle", "spread('ZREM', leases, freed)", "", (laws.TWICE, laws.ZOMBIE)),
    Fault("a batch that is settled whole stays leased", "settle",
          "redis.call('ZREMRANGEBYSCORE', leases, token, token)", "", (laws.TWICE, laws.ZOMBIE)),
    Fault("a batch is whole if the number is right", "settle", "token, token), ' ') == text end",
          "token, token), ' ') ~= '' end", (laws.ZOMBIE, laws.TWICE), ("publish", "plan", "take", "settle")),
    Fault("a batch is whole if all of it was sent", "settle",
          "if redis.call('ZCOUNT', leases, token, token) ~= number then return false end",
          "if number == taken then return true end",
          (laws.ZOMBIE, laws.TWICE), ("publish", "plan", "settle", "abandon")),
    Fault("an abandoned job still counts as left", "_end_job", "job_ended(id, record.stage)", "", (laws.COUNTS,)),
    Fault("the lane's numbers are not kept", "_shard", "    gauge(lane)\n", "", (laws.COUNTS,)),
    Fault("a stage ends one job early", "_shard", "if left == 0 then", "if left <= 1 then",
          (laws.ORDER, laws.COUNTS, laws.FINAL, laws.LOST)),
    Fault("the release does not wait for every chain", "_shard", "if chains ~= 0 then", "if chains < 0 then",
          (laws.ORDER, laws.TWICE, laws.COUNTS, laws.FINAL)),
    Fault("what comes last does not wait for every chain", "_shard", "if chains == 1 then last, finale",
          "if chains >= 1 then last, finale", (laws.ORDER, laws.COUNTS), ("publish", "plan", "work_on", "settle")),
    Fault("the janitor opens what comes last", "repair", "turn = tonumber(record['chains_left']) == 1", "turn = true",
          (laws.ORDER,), ("publish", "plan", "janitor", "work_on")),
    Fault("what is done can be planned again", "plan", "if state ~= 'published' and not is_held(state) then",
          "if false then", (laws.FINAL, laws.ANSWER)),
    Fault("a leftover entry reopens what is done", "hold", "if state and state ~= 'published' and not is_held(state)",
          "if false", (laws.FINAL, laws.COUNTS, laws.HELD, laws.LOST), ("work_on", "hold", "plan")),
    Fault("an old token settles", "settle", " == fence then", " then", (laws.ZOMBIE,),
          ("publish", "plan", "settle_again_what_was_taken_since")),
    Fault("a lost batch is renewed", "renew", "if holds(worker, held[2], held[1]) then", "if true then",
          (laws.ZOMBIE,)),
    Fault("another worker's token settles", "settle", "local held = holds(worker, fence, lane)", "local held = true",
          (laws.ZOMBIE,), ("settle", "settle_what_another_took")),
    Fault("a repeated settle answers anew", "settle", REMEMBERED, "", (laws.REPEAT,), ("settle", "say_it_again")),
    Fault("no answer is remembered", "_move", "redis.call('GET', memory)", "false", (laws.REPEAT,)),
    Fault("a lane is scored too late", "_shard", "redis.call('ZADD', lanes, score, lane)",
          "redis.call('ZADD', lanes, score + 60000, lane)", (laws.SERVED,)),
    Fault("a lane is not scored when jobs come", "_shard", "    rescore(lane)\n    gauge", "    gauge",
          (laws.SERVED, laws.LEFTOVERS)),
    Fault("a lane stays full after a settle", "settle", "  fresh(lane)\n", "", (laws.SERVED, laws.COUNTS)),
    Fault("a lane is not woken", "wake_lanes", "redis.call('HDEL', stem .. 'dry', lane)", "", (laws.SERVED,)),
    Fault("a wait is forgotten", "settle", "local due = now + delay_of(item)", "local due = now", (laws.WAITS,)),
    Fault("what is not due is taken", "take", "'-inf', now, 'LIMIT', 0, most)", "'-inf', '+inf', 'LIMIT', 0, most)",
          (laws.WAITS,)),
    Fault("an entry is acked before its plan is whole", "plan", "answers[i] = {'writing', number}",
          "answers[i] = {'writing', number}; ack(plan[2])", (laws.EVENTS, laws.ANSWER, laws.DONE)),
    Fault("an entry that is gone is not added again", "repair",
          "if not (record['entry'] and under_way(record['entry'])) then", "if false then",
          (laws.EVENTS, laws.DONE)),
    Fault("a lane's cap is not looked at", "take",
          "math.max(0, want[4] - redis.call('ZCARD', stem .. 'leases:' .. lane))", "want[4]", (laws.CAP,),
          ("take", "jump")),
    Fault("a lease has no end", "take",
          "redis.call('ZADD', stem .. 'batches', now + lease, batch_name(fence, lane, worker))", "",
          (laws.HOLDERS, laws.ZOMBIE, laws.DONE)),
    Fault("a batch is given back in part", "reclaim", "redis.call('ZRANGEBYSCORE', leases, fence, fence)) do",
          "redis.call('ZRANGEBYSCORE', leases, fence, fence, 'LIMIT', 0, 1)) do", (laws.WHOLE, laws.HOLDERS)),
    Fault("what a lost plan wrote stays", "plan", "redis.call('UNLINK', stem .. 'job:' .. id .. '#' .. writing)", "",
          (laws.LEFTOVERS,), ("begin_to_plan", "publish", "plan", "hold")),
    Fault("a held job is not shown", "settle", "redis.call('ZADD', stem .. now_, now, 'job:' .. job)",
          "", (laws.HELD,), ("settle", "jump")),
    Fault("a job that waits no more is still shown", "settle", "redis.call('ZREM', stem .. before_, 'job:' .. job)",
          "", (laws.HELD,), ("settle", "jump")),
    Fault("since when it is held begins anew", "hold", "if before ~= where or not since then", "if true then",
          (laws.SINCE,), ("publish", "hold_for_a_while", "jump", "janitor")),
    Fault("a stage that was forgotten stays so", "repair", "open_stage(id, stage)", "", (laws.LOST, laws.DONE),
          ("settle", "work_on", "a_hand_forgets_that_a_stage_opens", "abandon")),
    Fault("the janitor forgets jobs in no place", "requeue", "if text then look_at", "if false then look_at",
          (laws.LOST, laws.COUNTS)),
    Fault("background work is never taken", "take",
          "from[2] = due(lane_key(lane, false), math.min(want[3], room - #from[1].ids))", "",
          (laws.DONE,), ("publish", "plan", "work_on")),
    Fault("a word on what was planned before counts", "plan", "'held', 'held_at', 'event'", "'held', 'event'",
          (laws.WORD, laws.ANSWER), ("publish", "plan", "hold_for_a_while", "unhold_by_name",
           "a_hand_removes_the_records_of_a_plan")),
    Fault("a word on what is being planned does not count", "unhold", "elseif replanned or is_held(state) then",
          "elseif is_held(state) then", (laws.WORD,), ("publish", "plan", "hold_for_a_while", "unhold_by_name")),
    Fault("what an unfinished append wrote counts as known", "_append", "spread('HDEL', index_of(plan), targets)", "",
          (laws.LATE,), FINDS),
    Fault("late targets are not in the index", "append", "spread('HSET', index, entries)", "", (laws.LATE_TWICE,),
          FINDS),
    Fault("the jobs of the plan are not in the index", "append", "if #numbers > 0 then index_records",
          "if false then index_records", (laws.KNOWN,), FINDS),
    Fault("a job that found targets does not wait for them", "append", "shape_behind[3] .. ' ' .. stage_base)",
          "shape_behind[3] .. ' ' .. own)", (laws.AFTER, laws.ORDER), FINDS),
    Fault("the janitor opens the release of a deletion with late targets", "repair",
          "turn = tonumber(record['chains_left']) == 0", "turn = tonumber(record['chains_left']) == 0 or record.late",
          (laws.RELEASED, laws.ORDER), (*FINDS, "janitor")),
    Fault("a job that found targets stays in its lane", "append", "redis.call('ZREM', leases, job)", "",
          (laws.AFTER, laws.TWICE, laws.ORDER), FINDS),
    Fault("an append needs no lease", "append", "local mine = holds(worker, fence, lane) and", "local mine = true or",
          (laws.ZOMBIE,), (*FINDS, "reclaim", "take")),
    Fault("a deletion takes any number of late targets", "append", "late + append.jobs > most_targets or", "",
          (laws.BOUNDS,), WITHIN_BOUNDS),
    Fault("a deletion takes any number of late stages", "append", " or late_stages + stages > most_stages", "",
          (laws.BOUNDS,), WITHIN_BOUNDS),
    Fault("a look is told that it has added nothing yet", "append", "return reply('writing', append.jobs)",
          "return reply('writing', 0)", (laws.BOUNDS,), WITHIN_BOUNDS),
    Fault("a job of any chain finds targets", "append", "shape[1] ~= 'finally' or", "", (laws.MISPLACED,),
          ("publish", "plan", "work_on", "find_outside_the_last_chain")),
    Fault("two jobs append at a time", "append",
          "if append.job ~= number and is_under_way(plan, append) then return reply('busy') end", "", (laws.BUSY,),
          ("publish", "plan", "work_on", "find_side_by_side")),
    Fault("the janitor removes what is being appended", "repair", " or is_under_way(plan, append) then return",
          " then return", (laws.BUSY,), (*FINDS, "janitor")),
    Fault("a withdrawn deletion takes late targets", "append", "if known[7] then return reply('withdrawn') end", "",
          (laws.WITHDRAWN,), ("publish", "plan", "work_on", "withdraw_while_appending")),
    Fault("the late targets of a withdrawn deletion are not cancelled", "withdraw",
          "local jobs = job_count(last, late)", "local jobs = job_count(last)", (laws.WITHDRAWN,),
          (*FINDS, "withdraw", "janitor")),
    Fault("an older worker gets a newer job", "take", "written and written <= version", "written",
          (laws.ANSWER,), ("a_newer_version_writes_a_job", "take", "jump")),
)  # fmt: skip

BUDGET = (
    Fault("tokens are taken at half price", "reserve", "d.tokens = d.tokens - given * draw[2]",
          "d.tokens = d.tokens - given * draw[2] / 2", (spending_log.BUCKET, spending_log.WINDOW)),
    Fault("a bucket is rounded up", "reserve", "math.floor((has - l.spare) / cost + 1e-9)",
          "math.ceil((has - l.spare) / cost)", (spending_log.BUCKET, spending_log.PAUSE)),
    Fault("spare tokens are used", "reserve", "(has - l.spare) / cost", "has / cost", (spending_log.BUCKET,)),
    Fault("a window begins anew at half its length", "_budget", "if elapsed >= l.per then",
          "if elapsed >= l.per / 2 then", (spending_log.WINDOW,), ("reserve", "jump")),
    Fault("a clock that goes back refills again", "_budget", "l.at = math.max(l.at, now)", "l.at = now",
          (spending_log.BUCKET,), ("reserve", "jump")),
    Fault("a return counts every time it is sent", "return_tokens", REMEMBERED, "",
          (budget.REPEAT, spending_log.BUCKET)),
    Fault("a reservation counts every time it is sent", "reserve", REMEMBERED, "", (budget.REPEAT,)),
    Fault("a return is credited though the bucket was full since", "_budget", "math.min(tokens, l.capacity - fullest)",
          "math.min(tokens, l.capacity - l.tokens)", (spending_log.BUCKET,)),
    Fault("a return is credited in the next window", "_budget", "reserved >= l.since and", "true and",
          (spending_log.WINDOW,), ("reserve", "give_back", "jump")),
    Fault("a return is credited after a correction", "_budget", "reserved <= l.fixed or ", "",
          (spending_log.EMPTY, spending_log.PAUSE, spending_log.BUCKET, spending_log.WINDOW)),
    Fault("a pause leaves the tokens", "correct", "l.tokens, l.at, l.from, l.ramp = 0,",
          "l.tokens, l.at, l.from, l.ramp = l.tokens,", (spending_log.PAUSE, spending_log.EMPTY)),
    Fault("the refill begins before the pause is over", "correct", "math.max(l.at, l.pause), math.max(l.at, l.pause)",
          "math.max(l.at, l.pause - 3000), math.max(l.at, l.pause - 3000)", (spending_log.EMPTY, spending_log.PAUSE),
          ("reserve", "pause", "jump")),
    Fault("the refill goes on during a pause", "correct", "math.max(l.at, l.pause), math.max(l.at, l.pause)",
          "l.at, l.at", (spending_log.PAUSE, spending_log.EMPTY)),
    Fault("more is given than was asked for", "reserve", "math.min(urgent, n - spent, places - spent - left)",
          "math.min(n - spent, places - spent - left)",
          (budget.ASKED,)),
    Fault("a remainder is not believed", "correct", "l.tokens, l.ramp = tokens, 0", "l.ramp = 0", (budget.TOLD,)),
    Fault("a lane that waits for many is woken for one", "reserve", "cost * least_of(d, draw, left)",
          "cost", (budget.TOGETHER, budget.KEPT)),
    Fault("a lane that waits for many is given any", "reserve", "waits_for_many then n = 0 end", "false then end",
          (budget.TOGETHER,)),
    Fault("nothing is kept for who waits for many", "reserve", "if one.lane == want[1] then break end",
          "do break end", (budget.KEPT,)),
    Fault("a lane is woken too early", "_budget", "return math.max(0, l.at - now) + short / rate",
          "return short / rate / 2", (budget.AGAIN,)),
)  # fmt: skip
