-- Which workers live: each shows itself every few seconds. Silence is counted by a clock of the shard that goes on only
-- while somebody shows himself, so that a server that took no writes is held against nobody.
local beats, GAP = stem .. 'beats', 3000

-- The clock's time, and whether the server is another than when somebody last showed himself, or was started anew.
local function life_clock()
  local known = redis.call('HMGET', stem .. 'meta', 'life_clock', 'life_at', 'life_run')
  local run = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') or ''
  local at = tonumber(known[2] or now)
  return tonumber(known[1] or 0) + math.max(0, math.min(now - at, GAP)), known[3] ~= run, run, math.max(at, now)
end

local function show(worker)
  local clock, anew, run, at = life_clock()
  if anew then
    for _, who in ipairs(redis.call('ZRANGE', beats, 0, -1)) do redis.call('ZADD', beats, clock, who) end
  end
  redis.call('HSET', stem .. 'meta', 'life_clock', clock, 'life_at', at, 'life_run', run)
  redis.call('ZADD', beats, clock, worker)
end

-- Workers that were silent for so long; who never showed himself here is not among them.
local function silent_for(ms)
  local clock, anew = life_clock()
  if ms <= 0 or anew then return {} end
  return redis.call('ZRANGEBYSCORE', beats, '-inf', clock - ms)
end

-- When the next worker would have been silent for so long; nil where there is none.
local function next_silent(ms)
  local first = ms > 0 and first_score(beats)
  return first and now + math.max(1000, ms - (life_clock() - first)) or nil
end
