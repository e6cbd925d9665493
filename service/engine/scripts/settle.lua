-- Writes the next state of a batch of attempts. A token that has expired or belongs to another worker changes nothing.
-- args: {worker, plans, groups}; plans are names DELETION#PLAN; a group has the outcomes of a lane's batch: {lane,
-- fence, the gone, the rest, how many were taken under the fence (0: unknown)}. The gone are grouped by their note:
-- {note, how many, ids as one text, parts}; a part is {plan (index), stage, {number, record, number, record...}}. Each
-- of the rest is {kind, job, plan, number, stage, record, note, delay in ms, urgent (0|1), next lane ('': the same),
-- the index that listed it before ('' | held | waiting), the one that lists it now, alone (0|1), longest delay in ms
-- while a job of the same deletion ended recently (0: none)}, with its record without the closing brace, so that times
-- can be added. Kinds: `dead` ends a job, `back` returns it unchanged, `unreadable` sets it aside, all others requeue
-- it with a due time. Answers {for each group the jobs that were not accepted, stages opening}.
if repeated then return repeated end
local worker, names = args[1], args[2]
local counts, plans, refused = {}, {}, {}
local LATELY = 600000

-- Collects records, which are written once for each plan.
local function keep(plan, number, text)
  local fields = plans[plan]
  if not fields then
    fields = {}
    plans[plan] = fields
  end
  local n = #fields
  fields[n + 1], fields[n + 2] = number, text
end

local function deletion(plan)
  return string.sub(names[plan], 1, string.find(names[plan], '#', 1, true) - 1)
end

-- Like `job_ended`, for a plan by its index.
local known = {}
local function job_over(plan, stage, number)
  local key = plan * 1000 + stage
  local entry = known[key]
  if entry then
    entry[3] = entry[3] + number
  else
    entry = {deletion(plan), stage, number}
    known[key] = entry
    ended[#ended + 1] = entry
  end
end

-- The delay of a job: an unseen dependency may be a resource of the same deletion that was just removed.
local function delay_of(item)
  if item[14] == 0 or item[8] <= item[14] then return item[8] end
  local ended = redis.call('HGET', deletion_key(deletion(item[3])), 'last_end')
  return ended and now - tonumber(ended) < LATELY and item[14] or item[8]
end

-- A job that stays in its index keeps the time since when it is there.
local function mark(job, before_, now_)
  if before_ == now_ then return end
  if before_ ~= '' then redis.call('ZREM', stem .. before_, 'job:' .. job) end
  if now_ ~= '' then redis.call('ZADD', stem .. now_, now, 'job:' .. job) end
end

local function move(lane, item)
  local kind, job, plan, number, stage = item[1], item[2], item[3], item[4], item[5]
  if kind == 'unreadable' then
    -- The record is not changed, so that an operator can inspect it.
    redis.call('ZADD', stem .. 'dead', now, job)
    redis.call('ZADD', stem .. 'held', now, 'job:' .. job)
    redis.call('ZREM', stem .. 'waiting', 'job:' .. job)
    decide('set aside', job, item[7])
    return
  end
  if kind == 'gone' or kind == 'dead' then
    keep(plan, number, item[6] .. '}')
    if kind == 'dead' then
      redis.call('ZADD', stem .. 'dead', now, job)
      redis.call('HINCRBY', deletion_key(deletion(plan)), 'given_up', 1)
    end
    job_over(plan, stage, 1)
  else
    local due = now + delay_of(item)
    keep(plan, number, item[6] .. ',"last_at":' .. moment() .. ',"due":' .. string.format('%.0f', due) .. '}')
    if item[13] == 1 and kind == 'back' then
      -- Returned before it was tried: it must still be tried alone.
      redis.call('ZADD', stem .. 'alone', due, job)
      redis.call('XADD', stem .. 'wake', 'MAXLEN', '~', 100, '*', 'next', due)
    else
      enter(job, item[10] ~= '' and item[10] or lane, item[9] == 1, due)
    end
  end
  mark(job, item[11], item[12])
end

-- One audit entry for the batch, with a field for each different outcome and its jobs.
local function record_outcomes(lane, outcome)
  local flat = {}
  for i, note in ipairs(outcome) do
    flat[2 * i - 1], flat[2 * i] = note, table.concat(outcome[note], ' ')
  end
  for first = 1, #flat, 200 do
    redis.call('XADD', stem .. 'audit', '*', 'entry', 'outcome', 'worker', worker, 'lane', lane,
               unpack(flat, first, math.min(first + 199, #flat)))
  end
end

-- Whether the settled jobs are all that are leased under the token. For a batch as it was taken the number is
-- sufficient, because nothing is ever added to a batch; for others the ids in the server's order are compared as one
-- text. That avoids work for each job.
local function is_whole(leases, token, gone, taken)
  local number, text = gone[2], gone[3]
  if redis.call('ZCOUNT', leases, token, token) ~= number then return false end
  if number ~= taken then return table.concat(redis.call('ZRANGEBYSCORE', leases, token, token), ' ') == text end
  -- A server that was restored may have assigned the token again, for other jobs.
  return redis.call('ZSCORE', leases, string.match(text, '^%S+')) == token
end

-- The common case: all jobs that are leased under the token are gone.
local function settle_whole(lane, fence, gone, taken)
  local note, number, text, parts = gone[1], gone[2], gone[3], gone[4]
  local leases, token = stem .. 'leases:' .. lane, string.format('%.0f', fence)
  if not is_whole(leases, token, gone, taken) then return false end
  for _, part in ipairs(parts) do
    local plan, stage, fields = part[1], part[2], part[3]
    spread('HSET', stem .. 'job:' .. names[plan], fields)
    job_over(plan, stage, #fields / 2)
  end
  redis.call('ZREMRANGEBYSCORE', leases, token, token)
  redis.call('ZREM', stem .. 'batches', batch_name(fence, lane, worker))
  redis.call('XADD', stem .. 'audit', '*', 'entry', 'outcome', 'worker', worker, 'lane', lane, note, text)
  counts.gone = (counts.gone or 0) + number
  count('lane/' .. lane .. '/gone', number)
  fresh(lane)
  return true
end

-- Settles job by job: some leases were lost, or the outcomes differ. Of a batch that this worker does not hold, none is
-- accepted.
local function settle_each(lane, fence, gone, rest, held)
  local jobs, outcome, late = {}, {}, {}
  local leases = stem .. 'leases:' .. lane
  for _, alike in ipairs(gone) do
    for _, part in ipairs(alike[4]) do
      for n = 1, #part[3], 2 do jobs[#jobs + 1] = names[part[1]] .. '.' .. part[3][n] end
    end
  end
  for _, item in ipairs(rest) do jobs[#jobs + 1] = item[2] end
  if not held then return jobs end
  local holders = {}
  for first = 1, #jobs, SPREAD do
    local part = redis.call('ZMSCORE', leases, unpack(jobs, first, math.min(first + SPREAD - 1, #jobs)))
    for i, score in ipairs(part) do holders[first + i - 1] = score and tonumber(score) end
  end
  local freed, i, mine = {}, 0, {}
  -- Whether the next job is leased under the token; if so, its outcome is recorded.
  local function accept(kind, note)
    i = i + 1
    local job = jobs[i]
    if holders[i] == fence then
      freed[#freed + 1] = job
      local same = outcome[note]
      if same then
        same[#same + 1] = job
      else
        outcome[note] = {job}
        outcome[#outcome + 1] = note
      end
      mine[kind] = (mine[kind] or 0) + 1
      return true
    end
    late[#late + 1] = job
    return false
  end
  for _, alike in ipairs(gone) do
    for _, part in ipairs(alike[4]) do
      local fields = part[3]
      for n = 1, #fields, 2 do
        if accept('gone', alike[1]) then
          keep(part[1], fields[n], fields[n + 1])
          job_over(part[1], part[2], 1)
        end
      end
    end
  end
  for _, item in ipairs(rest) do
    if accept(item[1], item[7]) then move(lane, item) end
  end
  if #freed > 0 then
    spread('ZREM', leases, freed)
    local token = string.format('%.0f', fence)
    if redis.call('ZCOUNT', leases, token, token) == 0 then
      redis.call('ZREM', stem .. 'batches', batch_name(fence, lane, worker))
    end
    record_outcomes(lane, outcome)
    for kind, number in pairs(mine) do
      counts[kind] = (counts[kind] or 0) + number
      count('lane/' .. lane .. '/' .. kind, number)
    end
    fresh(lane)
  end
  return late
end

for i, group in ipairs(args[3]) do
  local lane, fence, gone, rest = group[1], group[2], group[3], group[4]
  local held = holds(worker, fence, lane)
  local whole = held and #gone == 1 and #rest == 0 and settle_whole(lane, fence, gone[1], group[5])
  refused[i] = whole and {} or settle_each(lane, fence, gone, rest, held)
end
for plan, fields in pairs(plans) do spread('HSET', stem .. 'job:' .. names[plan], fields) end
close_books()
place()
for kind, number in pairs(counts) do count(kind, number) end
return answer({refused, #opening / 2})
