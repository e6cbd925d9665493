-- Due jobs of lanes into their lease sets, under fencing tokens; one audit entry of intent for each lane.
-- args: {worker, lease in ms, version, fields, lanes}; a lane is {name, urgent, background, cap, again (ms until the
-- budget has more, 0: no want), alone (job id or '')}. Answers {now, per lane {name, taken, rows}}; a row is the
-- job's id, its fence and its fields. A repeated call reads the same jobs again.
local worker, lease, version, fields = args[1], args[2], args[3], args[4]
local DEFAULTS = {attempts = '0', waits = '0', held = '0', alone = '0', deadline = '0', urgent = '0', stage = '0', v = '0'}

local function row(job, fence)
  local values = redis.call('HMGET', job_key(job), unpack(fields))
  if not values[1] then return nil end
  local line = {job, fence}
  for i, name in ipairs(fields) do line[i + 2] = values[i] or DEFAULTS[name] or '' end
  return line, tonumber(values[1])
end

if repeated then
  local known = cmsgpack.unpack(repeated)
  for _, lane in ipairs(known[2]) do
    for i, held in ipairs(lane[3]) do lane[3][i] = row(held[1], held[2]) or held end
  end
  return cmsgpack.pack(known)
end

-- Tokens follow the server's time, so that a lost write can't hand one out twice.
local fence = math.max(tonumber(redis.call('HGET', stem .. 'meta', 'fence') or 0), now * 1000)
local found, kept, lost = {}, {}, 0

local function vanish(queue, job)
  redis.call('ZREM', queue, job)
  redis.call('ZREM', stem .. 'jobs', job)
  decide('lost', job, 'its record is gone')
  lost = lost + 1
end

local function lift(lane, queue, ids, rows)
  local gone = {}
  for _, job in ipairs(ids) do
    local line, written = row(job, fence + 1)
    if not line then
      vanish(queue, job)
    elseif not written or written > version then
      redis.call('ZADD', stem .. 'newer', now, 'job:' .. job)
      gone[#gone + 1] = job
    else
      fence = fence + 1
      gone[#gone + 1] = job
      rows[#rows + 1] = line
    end
  end
  if #gone > 0 then spread('ZREM', queue, gone) end
end

local taken = 0
for _, want in ipairs(args[5]) do
  local lane, cap, alone = want[1], want[4], want[6]
  local leases = stem .. 'leases:' .. lane
  local leased = redis.call('ZCARD', leases)
  local room, rows = math.max(0, cap - leased), {}
  if alone ~= '' then
    local due = redis.call('ZSCORE', stem .. 'alone', alone)
    if room > 0 and due and want[2] + want[3] > 0 then
      lift(lane, stem .. 'alone', {alone}, rows)
    end
  else
    local urgent, background = math.min(want[2], room), 0
    if urgent > 0 then
      lift(lane, lane_key(lane, true),
           redis.call('ZRANGEBYSCORE', lane_key(lane, true), '-inf', now, 'LIMIT', 0, urgent), rows)
    end
    background = math.min(want[3], room - #rows)
    if background > 0 then
      lift(lane, lane_key(lane, false),
           redis.call('ZRANGEBYSCORE', lane_key(lane, false), '-inf', now, 'LIMIT', 0, background), rows)
    end
  end
  if #rows > 0 then
    local ends, holders, intent, brief = {}, {}, {}, {}
    for i, line in ipairs(rows) do
      ends[2 * i - 1], ends[2 * i] = now + lease, line[1]
      holders[2 * i - 1], holders[2 * i] = line[1], string.format('%.0f', line[2]) .. ' ' .. worker
      intent[i] = line[1]
      brief[i] = {line[1], line[2]}
    end
    spread('ZADD', leases, ends)
    spread('HSET', stem .. 'holders:' .. lane, holders)
    if not redis.call('ZSCORE', stem .. 'leased', lane) then
      redis.call('ZADD', stem .. 'leased', now + lease, lane)
    end
    redis.call('XADD', stem .. 'audit', '*', 'entry', 'intent', 'worker', worker, 'lane', lane, 'count', #rows,
               'jobs', table.concat(intent, ' '))
    taken = taken + #rows
    found[#found + 1] = {lane, #rows, rows}
    kept[#kept + 1] = {lane, #rows, brief}
  end
  if want[5] > 0 then redis.call('HSET', stem .. 'dry', lane, now + want[5]) end
  rescore(lane)
  if room - #rows <= 0 then
    -- Full: `settle` scores it anew; the end of its first lease is the latest that it waits.
    local soonest = first_score(leases)
    if soonest and redis.call('ZSCORE', lanes, lane) then redis.call('ZADD', lanes, math.max(now, soonest), lane) end
  end
  gauge(lane)
end
if taken > 0 then redis.call('HSET', stem .. 'meta', 'fence', fence) end
count('taken', taken)
count('lost', lost)
announce()
return answer({now, found}, {now, kept})
