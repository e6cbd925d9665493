-- Removes, a bounded number at a time, expired data: finished deletions with their jobs, audit entries, statistics of
-- empty lanes, silent workers.
-- args: {most, finished in ms, audit in ms, audit entries, lanes in ms, consumers
-- in ms}; answers {deletions, lanes removed}.
if repeated then return repeated end
local most, removed, emptied = args[1], 0, 0
local doomed = {}
local function doom(key)
  doomed[#doomed + 1] = key
  if #doomed >= 500 then redis.call('UNLINK', unpack(doomed)); doomed = {} end
end

for _, id in ipairs(redis.call('ZRANGEBYSCORE', stem .. 'finished', '-inf', now - args[2], 'LIMIT', 0, most)) do
  local key = deletion_key(id)
  -- A deletion that was dropped during planning has left chunks of a plan.
  for _, plan in ipairs(redis.call('HMGET', key, 'plan', 'plan_writing')) do
    if plan then
      doom(stem .. 'job:' .. id .. '#' .. plan)
      doom(stem .. 'targets:' .. id .. '#' .. plan)
    end
  end
  doom(key)
  doom(stem .. 'abandoned:' .. id)
  redis.call('ZREM', stem .. 'finished', id)
  unshow('deletion:' .. id)
  removed = removed + 1
end
if #doomed > 0 then redis.call('UNLINK', unpack(doomed)) end

-- Removes index entries of jobs without a record.
local function forget(index, pattern)
  local cursor = index .. '_cursor'
  local page = redis.call('ZSCAN', stem .. index, redis.call('HGET', stem .. 'meta', cursor) or '0', 'COUNT', 200)
  redis.call('HSET', stem .. 'meta', cursor, page[1])
  for i = 1, #page[2], 2 do
    local job = string.match(page[2][i], pattern)
    local record, text
    if job then record, text = read(job) end
    if job and not record and not text then redis.call('ZREM', stem .. index, page[2][i]) end
  end
end
forget('dead', '^.*$')
forget('held', '^job:(.*)$')
forget('waiting', '^job:(.*)$')

redis.call('XTRIM', stem .. 'audit', 'MINID', '~', string.format('%.0f', math.max(0, now - args[3])), 'LIMIT', 1000)
redis.call('XTRIM', stem .. 'audit', 'MAXLEN', '~', args[4], 'LIMIT', 1000)

-- A lane consists of its sorted sets, which vanish when empty; only its statistics remain.
local cursor = redis.call('HGET', stem .. 'meta', 'lane_cursor') or '0'
local step = redis.call('HSCAN', stem .. 'stats', cursor, 'MATCH', 'lane/*/seen', 'COUNT', 200)
redis.call('HSET', stem .. 'meta', 'lane_cursor', step[1])
for i = 1, #step[2], 2 do
  local lane = string.match(step[2][i], '^lane/(.*)/seen$')
  local idle = redis.call('EXISTS', lane_key(lane, false), lane_key(lane, true), stem .. 'leases:' .. lane) == 0
  if idle and now - tonumber(step[2][i + 1]) > args[5] then
    for _, name in ipairs({'queued', 'leased', 'due', 'oldest', 'seen', 'gone', 'dead', 'throttled',
                            'blocked', 'refused', 'retry', 'check', 'back', 'found', 'unreadable'}) do
      redis.call('HDEL', stem .. 'stats', 'lane/' .. lane .. '/' .. name)
    end
    emptied = emptied + 1
  end
end
redis.call('ZREMRANGEBYSCORE', stem .. 'workers', '-inf', now - 86400000)
local clock = tonumber(redis.call('HGET', stem .. 'meta', 'heartbeat_clock') or 0)
redis.call('ZREMRANGEBYSCORE', stem .. 'heartbeats', '-inf', clock - 86400000)

-- Deletes consumers that are long silent and have no pending entries, which would be deleted with them.
local consumers = redis.pcall('XINFO', 'CONSUMERS', stem .. 'events', 'planners')
for i = 1, math.min(#consumers, 200) do
  local one, facts = consumers[i], {}
  for j = 1, #one, 2 do facts[one[j]] = one[j + 1] end
  if facts['pending'] == 0 and tonumber(facts['idle']) > args[6] then
    redis.call('XGROUP', 'DELCONSUMER', stem .. 'events', 'planners', facts['name'])
  end
end

-- Removes suspect records of entries that no longer exist.
local suspects = redis.call('HSCAN', stem .. 'suspects', '0', 'COUNT', 100)[2]
for i = 1, math.min(#suspects, 200), 2 do
  if #redis.call('XRANGE', stem .. 'events', suspects[i], suspects[i]) == 0 then
    redis.call('HDEL', stem .. 'suspects', suspects[i])
  end
end
return answer({removed, emptied})
