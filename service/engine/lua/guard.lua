-- Lets deletions of a source through as long as their window has room, and holds every new one once one had none, until
-- a person releases it. Distinct uids count, by the time at which their objects were deleted.
-- args: {source, list of {uid, deleted at in ms (0: not known)}, limit, window in ms, why it is held if it trips
-- now}; answers {let through (1) or held (0) for each, why, tripped by this call (0|1), how many count}.
if repeated then return repeated end
local source, limit, window = args[1], args[3], args[4]
local record, counting = stem .. 'source:' .. source, stem .. 'guard:' .. source
local passed, waiting = stem .. 'passed:' .. source, stem .. 'guarded:' .. source
-- Whoever was let through stays so, and counts, for a week after he was last asked for: planning may be tried again
-- long after the window, and a deletion of long ago must find the others of its time.
local KEPT, MOST, PLACES = math.max(604800000, 2 * window), 1000, 8
local known = redis.call('HMGET', record, 'guard_tripped', 'guard_why', 'guard_from', 'guard_counted')
local tripped, why, from, most = known[1], known[2] or '', tonumber(known[3] or 0), tonumber(known[4] or 0)
local answers, newly = {}, 0

local function trim(key, before)
  local old = redis.call('ZRANGEBYSCORE', key, '-inf', '(' .. before, 'LIMIT', 0, MOST)
  if #old > 0 then spread('ZREM', key, old) end
  return old
end

local function between(first, last) return redis.call('ZCOUNT', counting, first, last) end

-- The most that one window around the moment of a deletion has, wherever its objects are met in time: with those
-- before it, with those after it, and where neither is full and both together could be, in some places between.
local function fullest(at)
  local before, after = between('(' .. at - window, at), between(at, '(' .. at + window)
  local found = math.max(before, after)
  if found >= limit or before + after < limit then return found end
  for place = 1, PLACES - 1 do
    local first = at - math.floor(window * place / PLACES)
    found = math.max(found, between(first, '(' .. first + window))
  end
  return found
end

local forgotten = trim(passed, now - KEPT)
if #forgotten > 0 then spread('ZREM', counting, forgotten) end
trim(waiting, math.min(from, now - KEPT))
for i, item in ipairs(args[2]) do
  local uid, at = item[1], item[2]
  -- A grace period puts the deletion's time into the future; it counts from when it is first seen then.
  if at <= 0 or at > now then at = now end
  if redis.call('ZSCORE', passed, uid) then
    redis.call('ZADD', passed, now, uid)
    answers[i] = 1
  else
    local held = redis.call('ZSCORE', waiting, uid)
    local released = held and tonumber(held) <= from
    if not (tripped or released) then
      local found = fullest(at)
      if found >= limit then
        tripped, why, newly, most = now, args[5], 1, found
        redis.call('HSET', record, 'guard_tripped', now, 'guard_why', why, 'guard_counted', most)
        count('guard_tripped', 1)
        decide('guard tripped', source, why)
      end
    end
    if tripped and not released then
      -- After the last release, also in the same millisecond and with a clock that went back.
      if not held then redis.call('ZADD', waiting, math.max(now, from + 1), uid) end
      answers[i] = 0
    else
      redis.call('ZADD', passed, now, uid)
      if held then redis.call('ZREM', waiting, uid) end
      -- What a person has released counts for nothing: it is not by mistake that it goes.
      if not released then redis.call('ZADD', counting, at, uid) end
      answers[i] = 1
    end
  end
end
-- A source that is not asked for any more leaves nothing behind.
for _, key in ipairs({passed, counting}) do redis.call('PEXPIRE', key, 2 * KEPT) end
-- The window that tripped it may be long past: it is the one to tell of as long as it holds.
local counted = math.max(most, between('(' .. now - window, '+inf'))
local name = 'guard/' .. source .. '/'
redis.call('HSET', stem .. 'stats', name .. 'counted', counted, name .. 'tripped', tripped and 1 or 0,
           name .. 'held', redis.call('ZCOUNT', waiting, '(' .. from, '+inf'))
return answer({answers, tripped and why or '', newly, counted})
