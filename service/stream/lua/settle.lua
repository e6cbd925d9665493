-- The next state of a batch of attempts, each by its fencing token; an old token changes nothing.
-- args: {worker, items}; an item is {job, fence, kind, delay in ms, stage, lane, urgent (0|1), next lane ('': the
-- same), held before (0|1), held now (0|1), alone (0|1), record without its closing brace, note}.
-- Kinds: gone and dead end a job, `back` returns it untouched, `unreadable` sets it aside, all others put it back with a due time.
-- Answers {fences accepted or 0 for each, stages opening}.
if repeated then return repeated end
local worker, items, accepted = args[1], args[2], {}
local groups, counts, seen, plans = {}, {}, {}, {}
local moment = string.format('%.0f', now)
for i, item in ipairs(items) do
  local group = groups[item[6]]
  if not group then
    group = {jobs = {}, at = {}}
    groups[item[6]] = group
    groups[#groups + 1] = item[6]
  end
  group.jobs[#group.jobs + 1] = item[1]
  group.at[#group.at + 1] = i
end

-- Written once for each plan, with all its jobs of this call.
local function keep(job, text)
  local key, field, id = home(job)
  local plan = plans[key]
  if not plan then
    plan = {}
    plans[key] = plan
    plans[#plans + 1] = key
  end
  plan[#plan + 1] = field
  plan[#plan + 1] = text
  return id
end

local FINAL = {gone = true, dead = true}
local function move(item)
  local job, kind = item[1], item[3]
  if kind == 'unreadable' then
    -- What can't be read is left as it is, for a person to look at.
    redis.call('ZADD', stem .. 'dead', now, job)
    redis.call('ZADD', stem .. 'held', now, 'job:' .. job)
    decide('set aside', job, item[13])
    return
  end
  if FINAL[kind] then
    local id = keep(job, item[12] .. ',"last_at":' .. moment .. '}')
    if kind == 'dead' then
      redis.call('ZADD', stem .. 'dead', now, job)
      redis.call('HINCRBY', deletion_key(id), 'given_up', 1)
    end
    job_ended(id, item[5])
  else
    local due = now + item[4]
    keep(job, item[12] .. ',"last_at":' .. moment .. ',"due":' .. string.format('%.0f', due) .. '}')
    if item[11] == 1 and kind == 'back' then
      -- Handed back before it was tried: it is still under suspicion.
      redis.call('ZADD', stem .. 'alone', due, job)
      redis.call('XADD', stem .. 'wake', 'MAXLEN', '~', 100, '*', 'next', due)
    else
      enter(job, item[8] ~= '' and item[8] or item[6], item[7] == 1, due)
    end
  end
  if item[10] == 1 and item[9] == 0 then
    redis.call('ZADD', stem .. 'held', now, 'job:' .. job)
  elseif item[9] == 1 and item[10] == 0 then
    redis.call('ZREM', stem .. 'held', 'job:' .. job)
  end
end

-- One entry for the batch: a field for each different outcome, with the jobs that had it.
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

for _, lane in ipairs(groups) do
  local group, freed, outcome, holders = groups[lane], {}, {}, {}
  for first = 1, #group.jobs, SPREAD do
    local part = redis.call('HMGET', stem .. 'holders:' .. lane,
                            unpack(group.jobs, first, math.min(first + SPREAD - 1, #group.jobs)))
    for i, holder in ipairs(part) do holders[first + i - 1] = holder end
  end
  local fence, expected
  for i, at in ipairs(group.at) do
    local item = items[at]
    if item[2] ~= fence then
      fence = item[2]
      expected = string.format('%.0f', fence) .. ' ' .. worker
    end
    if holders[i] == expected and not seen[item[1]] then
      seen[item[1]] = true
      freed[#freed + 1] = item[1]
      accepted[at] = fence
      move(item)
      counts[item[3]] = (counts[item[3]] or 0) + 1
      local same = outcome[item[13]]
      if same then
        same[#same + 1] = item[1]
      else
        outcome[item[13]] = {item[1]}
        outcome[#outcome + 1] = item[13]
      end
    else
      accepted[at] = 0
    end
  end
  if #freed > 0 then
    spread('HDEL', stem .. 'holders:' .. lane, freed)
    spread('ZREM', stem .. 'leases:' .. lane, freed)
    record_outcomes(lane, outcome)
    count('lane/' .. lane .. '/settled', #freed)
    fresh(lane)
  end
end
for _, key in ipairs(plans) do spread('HSET', key, plans[key]) end
close_books()
place()
for kind, number in pairs(counts) do count(kind, number) end
return answer({accepted, #opening / 2})
