-- Which workers live: each shows itself every few seconds, and says for how long it may be silent until it is dead. That
-- is counted by a clock of the shard which goes on only while somebody shows himself, so that a server that took no
-- writes is held against nobody.
local beats, GAP, SILENCE = stem .. 'beats', 3000, 8000

-- The clock's time, and whether the server is another than when somebody last showed himself, or was started anew.
local function life_clock()
  local known = redis.call('HMGET', stem .. 'meta', 'life_clock', 'life_at', 'life_run')
  local run = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') or ''
  local at = tonumber(known[2] or now)
  return tonumber(known[1] or 0) + math.max(0, math.min(now - at, GAP)), known[3] ~= run, run, math.max(at, now)
end

local function show(worker, silence)
  local clock, anew, run, at = life_clock()
  if anew then
    -- Nobody could show himself meanwhile: for who was not dead before, counting begins anew.
    for _, who in ipairs(redis.call('ZRANGEBYSCORE', beats, '(' .. (clock - GAP), clock + SILENCE)) do
      redis.call('ZADD', beats, clock + SILENCE, who)
    end
  end
  redis.call('HSET', stem .. 'meta', 'life_clock', clock, 'life_at', at, 'life_run', run)
  redis.call('ZADD', beats, clock + silence, worker)
end

-- Workers that were silent for too long, by name; who never showed himself here is not among them. They stay among the
-- dead until they show themselves: what one takes before that is not kept from others either.
local function fallen_silent()
  local clock, anew = life_clock()
  local dead, any = {}, false
  if anew then return dead, any end
  for _, who in ipairs(redis.call('ZRANGEBYSCORE', beats, '-inf', clock)) do dead[who], any = true, true end
  return dead, any
end

-- When the next worker would be dead; nil where there is none.
local function next_silent()
  local clock = life_clock()
  local first = redis.call('ZRANGEBYSCORE', beats, '(' .. clock, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
  return first and now + math.max(1000, tonumber(first) - clock) or nil
end
