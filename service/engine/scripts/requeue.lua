-- Scans the open stages of open deletions in steps and requeues jobs that are in no set; marks deletions with a missing
-- job record; requeues parked records of versions that this process can decode. A step that is too large for one call
-- is continued by the next. args: {cursor, most deletions, most jobs, grace in ms, version}; answers {next cursor,
-- requeued, decodable again}.
if repeated then return repeated end
local budget, grace, version, back, known = args[3], args[4], args[5], 0, 0
local cursor = string.match(args[1], '^%d+')
local step = redis.call('ZSCAN', stem .. 'open', cursor, 'COUNT', args[2])

-- Removes a lease whose token has no entry in `batches`, which would never expire.
local tokens
local function leased(job, lane)
  local token = redis.call('ZSCORE', stem .. 'leases:' .. lane, job)
  if not token then return false end
  if not tokens then
    tokens = {}
    for _, name in ipairs(redis.call('ZRANGE', stem .. 'batches', 0, -1)) do tokens[string.match(name, '^%S+ %S+')] = true end
  end
  if tokens[string.format('%.0f', token) .. ' ' .. lane] then return true end
  redis.call('ZREM', stem .. 'leases:' .. lane, job)
  fresh(lane)
  return false
end

local function placed(job, lane)
  return redis.call('ZSCORE', lane_key(lane, true), job) or redis.call('ZSCORE', lane_key(lane, false), job)
    or leased(job, lane) or redis.call('ZSCORE', stem .. 'alone', job)
    or redis.call('ZSCORE', stem .. 'newer', 'job:' .. job) or redis.call('ZSCORE', stem .. 'dead', job)
end

-- With its due time, so that a wait is neither lost nor shortened.
local function put_back(job, record)
  if record.state == 'aside' then
    redis.call('ZADD', stem .. 'dead', now, job)
  elseif record.alone == 1 then
    redis.call('ZADD', stem .. 'alone', record.due or now, job)
    redis.call('XADD', stem .. 'wake', 'MAXLEN', '~', 100, '*', 'next', record.due or now)
  else
    enter(job, record.lane, is_urgent(record), record.due or now)
  end
end

local function look_at(job, text, stage)
  local record = decoded(text)
  if not record then
    if redis.call('ZADD', stem .. 'dead', 'NX', now, job) == 1 then decide('set aside', job, 'its record can not be read') end
    return
  end
  -- A job that found late targets is in a later stage, while its number stays in the range of the former one.
  if record.stage ~= stage then return end
  if (record.state and record.state ~= 'aside') or placed(job, record.lane) then return end
  put_back(job, record)
  decide('requeued', job, 'it was in no place')
  back = back + 1
end

-- The first job of a deletion whose record is missing, while the rest of its plan exists.
local gap
-- Checks the jobs of one open stage from `first` on, as many as the budget allows; returns where it stopped.
local function walk(id, plan, stage, first, last)
  while first <= last and budget > 0 do
    local part, numbers = math.min(last - first + 1, budget, 200), {}
    for i = 1, part do numbers[i] = first + i - 1 end
    for i, text in ipairs(redis.call('HMGET', stem .. 'job:' .. id .. '#' .. plan, unpack(numbers))) do
      if text then look_at(id .. '#' .. plan .. '.' .. numbers[i], text, stage) end
      if not text and not gap then gap = numbers[i] end
    end
    first, budget = first + part, budget - part
  end
  return first
end

-- The open stages as ordered ranges of job numbers; of one that is opening, the jobs that were moved already.
local function ranges(id, record)
  local found = {}
  for field, shape in pairs(record) do
    local stage = string.match(field, '^stage%.(%d+)$')
    if stage and record['opened.' .. stage] and not record['closed.' .. stage] then
      local parts = split(shape)
      local first = tonumber(parts[2])
      found[#found + 1] = {first, first + tonumber(record['cursor.' .. stage] or parts[3]) - 1, tonumber(stage)}
    end
  end
  table.sort(found, function(one, other) return one[1] < other[1] end)
  return found
end

-- Continues with one deletion where the last call stopped; returns whether it is finished.
local function visit(id, key, record)
  local from = tonumber(record.walked or 0)
  for _, range in ipairs(ranges(id, record)) do
    local stopped = walk(id, record.plan, range[3], math.max(range[1], from), range[2])
    if stopped <= range[2] then
      redis.call('HSET', key, 'walked', stopped)
      return false
    end
  end
  return true
end

local DONE, through, visited, marked = 1e15, true, {}, {}
for i = 1, #step[2], 2 do
  local id, record = step[2][i], {}
  local key = deletion_key(id)
  local flat = redis.call('HGETALL', key)
  for j = 1, #flat, 2 do record[flat[j]] = flat[j + 1] end
  if record.walked then marked[#marked + 1] = key end
  if record.plan and now - tonumber(record.planned_at or 0) >= grace then
    gap = nil
    through = visit(id, key, record)
    -- A worker that has the job may still write its record; `repair` checks that later.
    if gap and not record.torn then redis.call('HSET', key, 'torn', string.format('%.0f %.0f', gap, now)) end
    if not through then break end
    visited[#visited + 1] = key
  end
end
if through then
  for _, key in ipairs(marked) do redis.call('HDEL', key, 'walked') end
else
  -- The same step is repeated; finished deletions are skipped.
  for _, key in ipairs(visited) do redis.call('HSET', key, 'walked', DONE) end
  step[1] = cursor .. '+'
end

-- Scanned with a cursor of its own, so that undecodable records do not block those after them.
local parked = redis.call('ZSCAN', stem .. 'newer', redis.call('HGET', stem .. 'meta', 'newer_cursor') or '0', 'COUNT', args[2])
redis.call('HSET', stem .. 'meta', 'newer_cursor', parked[1])
for i = 1, #parked[2], 2 do
  local member = parked[2][i]
  local job = string.match(member, '^job:(.*)$')
  if job then
    local key, field = home(job)
    local text = redis.call('HGET', key, field)
    if not text then
      redis.call('ZREM', stem .. 'newer', member)
    elseif (version_of(text) or math.huge) <= version then
      local record = read(job)
      redis.call('ZREM', stem .. 'newer', member)
      if record then
        put_back(job, record)
        known = known + 1
      else
        redis.call('ZADD', stem .. 'dead', now, job)
        decide('set aside', job, 'its record can not be read')
      end
    end
  else
    local entry = string.match(member, '^event:(.*)$')
    local kept = stem .. 'kept:' .. entry
    local written = redis.call('HGET', kept, 'v')
    if not written then
      redis.call('ZREM', stem .. 'newer', member)
    elseif tonumber(written) and tonumber(written) <= version then
      redis.call('ZREM', stem .. 'newer', member)
      if add_kept(entry) then
        known = known + 1
      else
        redis.call('ZADD', stem .. 'held', now, member)
        redis.call('HSET', stem .. 'why:' .. entry, 'why', 'it has too many fields to be an event', 'at', now)
      end
    end
  end
end
count('requeued', back)
place()
return answer({step[1], back, known})
