-- Leases due jobs of lanes under fencing tokens, with one audit entry of intent for each lane.
-- args: {worker, lease in ms, version, lanes}; a lane is {name, urgent, background, cap, again (ms until the budget has
-- more tokens, 0: it has enough), alone (job id or '')}. Answers {now, per lane {name, fence, jobs, records}}. A
-- repeated call reads the same jobs again.
local worker, lease, version = args[1], args[2], args[3]

-- Records of many jobs, false for missing ones. Consecutive jobs of a plan are read with one command.
local function records_of(jobs)
  local records, plan, fields, number, done = {}, nil, {}, 0, 0
  local function read_on()
    local texts = redis.call('HMGET', stem .. 'job:' .. string.sub(plan, 1, -2), unpack(fields))
    for i = 1, number do records[done + i] = texts[i] end
    fields, number, done = {}, 0, done + number
  end
  local length
  for _, job in ipairs(jobs) do
    if not plan or number == SPREAD or string.find(job, plan, 1, true) ~= 1 then
      if plan then read_on() end
      length = string.find(job, '.', string.find(job, '#', 1, true), true)
      plan = string.sub(job, 1, length)
    end
    number = number + 1
    fields[number] = string.sub(job, length + 1)
  end
  if plan then read_on() end
  return records
end

if repeated then
  -- The jobs that were taken are those under the same fence now.
  local known = cmsgpack.unpack(repeated)
  for _, lane in ipairs(known[2]) do
    local jobs, texts = {}, {}
    if holds(worker, lane[2], lane[1]) then
      jobs = redis.call('ZRANGEBYSCORE', stem .. 'leases:' .. lane[1], lane[2], lane[2])
    end
    local records = records_of(jobs)
    for i = 1, #jobs do texts[i] = records[i] or '' end
    lane[3], lane[4] = jobs, texts
  end
  return cmsgpack.pack(known)
end

local lost = 0
-- Sets a job aside that has no record, no version, or a version that the worker can't decode.
local function put_aside(job, text)
  if not text then
    decide('lost', job, 'its record is gone')
    lost = lost + 1
  elseif not version_of(text) then
    redis.call('ZADD', stem .. 'dead', now, job)
    redis.call('ZADD', stem .. 'held', now, 'job:' .. job)
    redis.call('ZREM', stem .. 'waiting', 'job:' .. job)
    decide('set aside', job, 'its record has no version')
  else
    -- Parked before it is leased: a process with this version requeues it.
    redis.call('ZADD', stem .. 'newer', now, 'job:' .. job)
  end
end

local function is_fit(text)
  local written = text and version_of(text)
  return written and written <= version
end

-- An id that an obsolete plan left in this lane may now be that of a job in another lane.
local function is_at_home(text, lane)
  if string.find(text, '"lane":"' .. lane .. '"', 1, true) then return true end
  local record = decoded(text)
  return not record or record.lane == lane
end

-- Everything is read before anything is written, so that an error changes nothing.
local function seen(queue, ids) return {queue = queue, ids = ids, records = records_of(ids)} end
local function due(queue, most)
  if most <= 0 then return seen(queue, {}) end
  return seen(queue, redis.call('ZRANGEBYSCORE', queue, '-inf', now, 'LIMIT', 0, most))
end

local given = {}
for i, want in ipairs(args[4]) do
  local lane = want[1]
  local room = math.max(0, want[4] - redis.call('ZCARD', stem .. 'leases:' .. lane))
  local from = {}
  if want[6] ~= '' then
    if room > 0 and want[2] + want[3] > 0 and redis.call('ZSCORE', stem .. 'alone', want[6]) then
      from[1] = seen(stem .. 'alone', {want[6]})
    end
  else
    from[1] = due(lane_key(lane, true), math.min(want[2], room))
    from[2] = due(lane_key(lane, false), math.min(want[3], room - #from[1].ids))
  end
  given[i] = {room = room, from = from, jobs = {}, records = {}}
end

-- Removes the jobs from their queues, and leases those that can be tried.
local ours = '{"v":' .. version .. ','
for i, want in ipairs(args[4]) do
  local jobs, texts, fit = given[i].jobs, given[i].records, 0
  for _, from in ipairs(given[i].from) do
    local queue, ids = from.queue, from.ids
    if want[6] ~= '' then
      redis.call('ZREM', queue, want[6])
    elseif #ids > 0 then
      -- The due jobs are the first of the queue.
      redis.call('ZREMRANGEBYRANK', queue, 0, #ids - 1)
    end
    for n, job in ipairs(ids) do
      local text = from.records[n]
      if text and not is_at_home(text, want[1]) then
        decide('lost', job, 'it is in another lane')
      elseif text and string.find(text, ours, 1, true) == 1 or is_fit(text) then
        fit = fit + 1
        jobs[fit], texts[fit] = job, text
      else
        put_aside(job, text)
      end
    end
  end
end

-- Fencing tokens follow the server's time, so that a lost write can't cause a duplicate.
local fence = math.max(tonumber(redis.call('HGET', stem .. 'meta', 'fence') or 0), now * 1000)
local found, kept, taken = {}, {}, 0
for i, want in ipairs(args[4]) do
  local lane, jobs, room = want[1], given[i].jobs, given[i].room
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
    found[#found + 1] = {lane, fence, jobs, given[i].records}
    kept[#kept + 1] = {lane, fence}
  end
  if want[5] > 0 or #jobs > 0 then redis.call('HSET', stem .. 'dry', lane, now + want[5]) end
  rescore(lane)
  if room - #jobs <= 0 then
    -- Full: `settle` and `reclaim` rescore it, at the latest when the lease ends.
    if redis.call('ZSCORE', lanes, lane) then redis.call('ZADD', lanes, now + lease, lane) end
  end
  gauge(lane)
end
if taken > 0 then redis.call('HSET', stem .. 'meta', 'fence', string.format('%.0f', fence)) end
count('taken', taken)
count('lost', lost)
announce()
return answer({now, found}, {now, kept})
