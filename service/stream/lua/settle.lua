-- The next state of a batch of attempts, each by its fencing token; an old token changes nothing.
-- args: {worker, items, entries of audit at most}; an item is {job, fence, kind, delay in ms, deletion, stage, lane,
-- urgent (0|1), next lane ('' : the same), held before (0|1), held now (0|1), alone (0|1), fields, note}.
-- Kinds: gone and dead end a job, `back` returns it untouched, all others put it back with a due time.
-- Answers {fences accepted or 0 for each, stages opening}.
if repeated then return repeated end
local worker, items, accepted = args[1], args[2], {}
local groups, counts, index, seen = {}, {}, {}, {}
for i, item in ipairs(items) do
  local group = groups[item[7]]
  if not group then
    group = {jobs = {}, at = {}}
    groups[item[7]] = group
    groups[#groups + 1] = item[7]
  end
  group.jobs[#group.jobs + 1] = item[1]
  group.at[#group.at + 1] = i
end

local FINAL = {gone = true, dead = true}
local function move(item)
  local job, kind, fields = item[1], item[3], item[13]
  fields[#fields + 1] = 'settled'
  fields[#fields + 1] = string.format('%.0f', item[2])
  fields[#fields + 1] = 'last_at'
  fields[#fields + 1] = now
  if FINAL[kind] then
    fields[#fields + 1] = 'state'
    fields[#fields + 1] = kind
    redis.call('HSET', job_key(job), unpack(fields))
    index[#index + 1] = job
    if kind == 'dead' then
      redis.call('ZADD', stem .. 'dead', now, job)
      redis.call('HINCRBY', deletion_key(item[5]), 'given_up', 1)
    end
    job_ended(item[5], item[6])
  else
    local lane, due = item[7], now + item[4]
    fields[#fields + 1] = 'due'
    fields[#fields + 1] = due
    if item[9] ~= '' then
      lane = item[9]
      fields[#fields + 1] = 'lane'
      fields[#fields + 1] = lane
    end
    redis.call('HSET', job_key(job), unpack(fields))
    if item[12] == 1 and kind == 'back' then
      -- Handed back before it was tried: it is still under suspicion.
      redis.call('ZADD', stem .. 'alone', due, job)
      redis.call('XADD', stem .. 'wake', 'MAXLEN', '~', 100, '*', 'next', due)
    else
      enter(job, lane, item[8] == 1, due)
    end
  end
  if item[11] == 1 and item[10] == 0 then
    redis.call('ZADD', stem .. 'held', now, 'job:' .. job)
  elseif item[10] == 1 and item[11] == 0 then
    redis.call('ZREM', stem .. 'held', 'job:' .. job)
  end
end

for _, lane in ipairs(groups) do
  local group, freed, outcome = groups[lane], {}, {}
  local holders = {}
  for first = 1, #group.jobs, SPREAD do
    local part = redis.call('HMGET', stem .. 'holders:' .. lane,
                            unpack(group.jobs, first, math.min(first + SPREAD - 1, #group.jobs)))
    for i, holder in ipairs(part) do holders[first + i - 1] = holder end
  end
  for i, at in ipairs(group.at) do
    local item = items[at]
    local fence = string.format('%.0f', item[2])
    if holders[i] == fence .. ' ' .. worker and not seen[item[1]] then
      seen[item[1]] = true
      freed[#freed + 1] = item[1]
      accepted[at] = item[2]
      move(item)
      counts[item[3]] = (counts[item[3]] or 0) + 1
      outcome[#outcome + 1] = item[1]
      outcome[#outcome + 1] = item[14]
    else
      accepted[at] = 0
    end
  end
  if #freed > 0 then
    spread('HDEL', stem .. 'holders:' .. lane, freed)
    spread('ZREM', stem .. 'leases:' .. lane, freed)
    for first = 1, #outcome, 200 do
      redis.call('XADD', stem .. 'audit', '*', 'entry', 'outcome', 'worker', worker, 'lane', lane,
                 unpack(outcome, first, math.min(first + 199, #outcome)))
    end
    count('lane/' .. lane .. '/settled', #freed)
    fresh(lane)
  end
end
if #index > 0 then spread('ZREM', stem .. 'jobs', index) end
close_books()
place()
for kind, number in pairs(counts) do count(kind, number) end
return answer({accepted, #opening / 2})
