-- Heartbeats of workers: `heartbeats` has the time until which each counts as alive, by a clock of the shard. The clock
-- advances only while heartbeats arrive, so that no worker dies from a time in which the server accepted no writes.
local heartbeats, GAP, SILENCE = stem .. 'heartbeats', 3000, 8000

-- Returns the clock, whether the server was restarted or replaced since the last heartbeat, its run id, and the time.
local function heartbeat_clock()
  local known = redis.call('HMGET', stem .. 'meta', 'heartbeat_clock', 'heartbeat_at', 'heartbeat_run')
  local run = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') or ''
  local at = tonumber(known[2] or now)
  return tonumber(known[1] or 0) + math.max(0, math.min(now - at, GAP)), known[3] ~= run, run, math.max(at, now)
end

-- Records a heartbeat; the worker is dead after `silence` ms without another one.
local function heartbeat(worker, silence)
  local clock, restarted, run, at = heartbeat_clock()
  if restarted then
    -- No worker could send a heartbeat meanwhile: those that were alive get the full time again.
    for _, who in ipairs(redis.call('ZRANGEBYSCORE', heartbeats, '(' .. (clock - GAP), clock + SILENCE)) do
      redis.call('ZADD', heartbeats, clock + SILENCE, who)
    end
  end
  redis.call('HSET', stem .. 'meta', 'heartbeat_clock', clock, 'heartbeat_at', at, 'heartbeat_run', run)
  redis.call('ZADD', heartbeats, clock + silence, worker)
end

-- The set of workers without a heartbeat for too long, and whether there are any; not workers that never sent one. They
-- stay dead until they send a heartbeat: jobs that they take are reclaimed at once.
local function dead_workers()
  local clock, restarted = heartbeat_clock()
  local dead, any = {}, false
  if restarted then return dead, any end
  for _, who in ipairs(redis.call('ZRANGEBYSCORE', heartbeats, '-inf', clock)) do dead[who], any = true, true end
  return dead, any
end

-- When the next worker would be dead; nil if there is none.
local function next_death()
  local clock = heartbeat_clock()
  local first = redis.call('ZRANGEBYSCORE', heartbeats, '(' .. clock, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
  return first and now + math.max(1000, tonumber(first) - clock) or nil
end
