-- Writes the jobs of deletions under a plan number. The last chunk makes them visible, opens the first stages and acks.
-- args: list of {id, entry, number (0: a new plan), offset, jobs, final, stages, release, chains, event fields, release
-- job "number lane urgent" and, if there is one, the stage that waits for all other chains, policy decision ('':
-- none)}; a job is {record, lane, urgent (0|1), delay, first (0|1), ms to its deadline (0: none)}; stages are {index,
-- "chain from count successor", first (0|1)}. Answers {state, number} for each: `writing`, `planned`, or `stale` (there
-- is another plan, or it is planned already).
if repeated then return repeated end
local answers, acked, planned, published = {}, {}, 0, 0

local function ack(entry)
  if entry ~= '' then acked[#acked + 1] = entry end
end

-- The first plan of a deletion has number 1, or the one after the last that `repair` retired.
local retired
local function begin(key, id)
  local number = redis.call('HINCRBY', key, 'plan_seq', 1)
  if number == 1 then
    retired = retired or tonumber(redis.call('HGET', stem .. 'meta', 'retired_plan') or 0)
    if retired > 0 then number = redis.call('HINCRBY', key, 'plan_seq', retired) end
  end
  if number > 1 then
    local highest = tonumber(redis.call('HGET', stem .. 'meta', 'highest_plan') or 1)
    if number > highest then redis.call('HSET', stem .. 'meta', 'highest_plan', number) end
  end
  -- Removes the chunks of an unfinished plan.
  local writing = redis.call('HGET', key, 'plan_writing')
  if writing then
    redis.call('UNLINK', stem .. 'job:' .. id .. '#' .. writing)
    redis.call('UNLINK', stem .. 'targets:' .. id .. '#' .. writing)
    redis.call('HDEL', key, 'plan_writing')
  end
  return number
end

local function write_jobs(plan, number)
  local fields = {}
  for i, job in ipairs(plan[5]) do
    fields[2 * i - 1], fields[2 * i] = plan[4] + i - 1, with_times(job[1], job[4], job[5], job[6])
  end
  spread('HSET', stem .. 'job:' .. plan[1] .. '#' .. number, fields)
end

local function flip(key, plan, number, whole)
  local id, release, chains = plan[1], plan[8], plan[9]
  local fields = {'state', chains == 0 and 'releasing' or 'running', 'plan', number, 'planned_at', now,
                  'release', release, 'chains_left', chains, 'last', plan[11]}
  for _, stage in ipairs(plan[7]) do
    fields[#fields + 1] = 'stage.' .. stage[1]
    fields[#fields + 1] = stage[2]
    fields[#fields + 1] = 'left.' .. stage[1]
    fields[#fields + 1] = split(stage[2])[3]
    if stage[3] == 1 then
      if whole then
        fields[#fields + 1] = 'opened.' .. stage[1]
        fields[#fields + 1] = now
      else
        open_stage(id, stage[1])
      end
    end
  end
  for _, part in ipairs(plan[10]) do fields[#fields + 1] = part end
  redis.call('HSET', key, unpack(fields))
  redis.call('HDEL', key, 'plan_writing', 'held', 'held_at', 'event', 'suspect', 'held_as', 'held_since')
  local why = plan[12]
  if why and why ~= '' then
    redis.call('HSET', key, 'policy', why)
    decide('policy', id, why)
  end
  if not whole then return end
  for i, job in ipairs(plan[5]) do
    if job[5] == 1 then
      local name = id .. '#' .. number .. '.' .. (i - 1)
      enter(name, job[2], job[3] == 1, now + job[4])
    end
  end
end

for i, plan in ipairs(args) do
  local id, number, final = plan[1], plan[3], plan[6]
  local key = deletion_key(id)
  local known = redis.call('HMGET', key, 'state', 'plan_seq', 'plan')
  local state = known[1]
  if not state and number == 0 then
    -- The event was not added by `publish`, or its record is lost: the event alone is enough.
    redis.call('HSET', key, 'state', 'published', 'published_at', now, 'entry', plan[2], unpack(plan[10]))
    redis.call('ZADD', stem .. 'open', now, id)
    published, state = published + 1, 'published'
  end
  local whole = number == 0 and final
  if state ~= 'published' and not is_held(state) then
    -- Planned already: the entry is obsolete, and so are the chunks of a concurrent plan.
    answers[i] = {'stale', number}
    ack(plan[2])
    if number ~= 0 and tonumber(known[3]) ~= number then
      redis.call('UNLINK', stem .. 'job:' .. id .. '#' .. number)
    end
  elseif number ~= 0 and tonumber(known[2]) ~= number then
    answers[i] = {'stale', number}
  else
    if number == 0 then number = begin(key, id) end
    write_jobs(plan, number)
    if final then
      flip(key, plan, number, whole)
      if is_held(state) then unshow('deletion:' .. id) end
      planned = planned + 1
      ack(plan[2])
      answers[i] = {'planned', number}
    else
      redis.call('HSET', key, 'plan_writing', number)
      answers[i] = {'writing', number}
    end
  end
end
if #acked > 0 then
  spread('XACK', stem .. 'events', acked, 'planners')
  spread('XDEL', stem .. 'events', acked)
end
close_books()
place()
count('planned', planned)
count('published', published)
return answer(answers)
