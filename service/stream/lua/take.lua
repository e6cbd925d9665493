-- Due jobs of lanes into their lease sets, under fencing tokens; one audit entry of intent for each lane.
-- args: {worker, lease in ms, version, lanes}; a lane is {name, urgent, background, cap, again (ms until the budget
-- has more, 0: no want), alone (job id or '')}. Answers {now, per lane {name, fence, jobs, records}}. A repeated call
-- reads the same jobs again.
local worker, lease, version = args[1], args[2], args[3]

-- Records of many jobs, in as few calls as there are plans among them; false where one is gone.
local function records_of(jobs)
  local plans, order, records = {}, {}, {}
  for i, job in ipairs(jobs) do
    local dot = string.find(job, '.', string.find(job, '#', 1, true), true)
    local name = string.sub(job, 1, dot - 1)
    local plan = plans[name]
    if not plan then
      plan = {fields = {}, at = {}, name = name}
      plans[name] = plan
      order[#order + 1] = plan
    end
    local n = #plan.at + 1
    plan.fields[n], plan.at[n] = string.sub(job, dot + 1), i
  end
  for _, plan in ipairs(order) do
    local key = stem .. 'job:' .. plan.name
    for first = 1, #plan.fields, SPREAD do
      local texts = redis.call('HMGET', key, unpack(plan.fields, first, math.min(first + SPREAD - 1, #plan.fields)))
      for i, text in ipairs(texts) do records[plan.at[first + i - 1]] = text end
    end
  end
  return records
end

if repeated then
  -- What was taken then is what is held under the same fence now.
  local known = cmsgpack.unpack(repeated)
  for _, lane in ipairs(known[2]) do
    local jobs, texts = redis.call('ZRANGEBYSCORE', stem .. 'leases:' .. lane[1], lane[2], lane[2]), {}
    local records = records_of(jobs)
    for i = 1, #jobs do texts[i] = records[i] or '' end
    lane[3], lane[4] = jobs, texts
  end
  return cmsgpack.pack(known)
end

-- Which jobs each lane gives, before any record is read.
local all, picked = {}, {}
local function pick(lane, queue, ids)
  for _, job in ipairs(ids) do
    all[#all + 1] = job
    picked[#picked + 1] = {lane, queue}
  end
  return #ids
end
local function due(queue, most)
  if most <= 0 then return {} end
  return redis.call('ZRANGEBYSCORE', queue, '-inf', now, 'LIMIT', 0, most)
end

local lanes_now = {}
for i, want in ipairs(args[4]) do
  local lane = want[1]
  local room = math.max(0, want[4] - redis.call('ZCARD', stem .. 'leases:' .. lane))
  lanes_now[i] = {room = room, jobs = {}, records = {}}
  if want[6] ~= '' then
    if room > 0 and want[2] + want[3] > 0 and redis.call('ZSCORE', stem .. 'alone', want[6]) then
      pick(i, stem .. 'alone', {want[6]})
    end
  else
    local urgent = lane_key(lane, true)
    local got = pick(i, urgent, due(urgent, math.min(want[2], room)))
    pick(i, lane_key(lane, false), due(lane_key(lane, false), math.min(want[3], room - got)))
  end
end

local records, leaving, lost = records_of(all), {}, 0
for i, job in ipairs(all) do
  local text, from = records[i], picked[i]
  local queue = leaving[from[2]]
  if not queue then
    queue = {}
    leaving[from[2]] = queue
  end
  queue[#queue + 1] = job
  if not text then
    decide('lost', job, 'its record is gone')
    lost = lost + 1
  else
    local written = version_of(text)
    if not written then
      redis.call('ZADD', stem .. 'dead', now, job)
      redis.call('ZADD', stem .. 'held', now, 'job:' .. job)
      decide('set aside', job, 'its record has no version')
    elseif written > version then
      -- Looked at before it is leased: a process that knows this version puts it back.
      redis.call('ZADD', stem .. 'newer', now, 'job:' .. job)
    else
      local lane = lanes_now[from[1]]
      lane.jobs[#lane.jobs + 1] = job
      lane.records[#lane.records + 1] = text
    end
  end
end
for queue, jobs in pairs(leaving) do spread('ZREM', queue, jobs) end

-- Tokens follow the server's time, so that a lost write can't hand one out twice.
local fence = math.max(tonumber(redis.call('HGET', stem .. 'meta', 'fence') or 0), now * 1000)
local found, kept, taken = {}, {}, 0
for i, want in ipairs(args[4]) do
  local lane, jobs, room = want[1], lanes_now[i].jobs, lanes_now[i].room
  local leases = stem .. 'leases:' .. lane
  if #jobs > 0 then
    fence = fence + 1
    local holds, token = {}, string.format('%.0f', fence)
    for n, job in ipairs(jobs) do holds[2 * n - 1], holds[2 * n] = token, job end
    spread('ZADD', leases, holds)
    redis.call('ZADD', stem .. 'batches', now + lease, batch_name(fence, lane, worker))
    redis.call('XADD', stem .. 'audit', '*', 'entry', 'intent', 'worker', worker, 'lane', lane, 'count', #jobs,
               'jobs', table.concat(jobs, ' '))
    taken = taken + #jobs
    found[#found + 1] = {lane, fence, jobs, lanes_now[i].records}
    kept[#kept + 1] = {lane, fence}
  end
  if want[5] > 0 or #jobs > 0 then redis.call('HSET', stem .. 'dry', lane, now + want[5]) end
  rescore(lane)
  if room - #jobs <= 0 then
    -- Full: `settle` and `reclaim` score it anew; the end of a lease is the latest that it waits.
    if redis.call('ZSCORE', lanes, lane) then redis.call('ZADD', lanes, now + lease, lane) end
  end
  gauge(lane)
end
if taken > 0 then redis.call('HSET', stem .. 'meta', 'fence', string.format('%.0f', fence)) end
count('taken', taken)
count('lost', lost)
announce()
return answer({now, found}, {now, kept})
