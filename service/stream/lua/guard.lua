-- Lets deletions of a source through as long as the window has room, and holds every new one once it had none, until
-- a person releases it. Distinct uids count, by the time at which their objects were deleted.
-- args: {source, list of {uid, deleted at in ms (0: not known)}, limit, window in ms, why it is held if it trips
-- now}; answers {let through (1) or held (0) for each, why, tripped by this call (0|1), how many count}.
if repeated then return repeated end
local source, limit, window = args[1], args[3], args[4]
local record, passed, waiting = stem .. 'source:' .. source, stem .. 'guard:' .. source, stem .. 'guarded:' .. source
-- Whoever was let through stays so for at least a day: planning may be tried again long after the window.
local KEPT, MOST = 86400000, 1000
local known = redis.call('HMGET', record, 'guard_tripped', 'guard_why', 'guard_from')
local tripped, why, from = known[1], known[2] or '', tonumber(known[3] or 0)
local since, answers, newly = math.max(now - window, from), {}, 0
local counted = redis.call('ZCOUNT', passed, '(' .. since, '+inf')

local function trim(key, before)
  local old = redis.call('ZRANGEBYSCORE', key, '-inf', '(' .. before, 'LIMIT', 0, MOST)
  if #old > 0 then spread('ZREM', key, old) end
end

-- A grace period puts the deletion's time into the future; it counts from when it is first seen then.
local function counting_from(at, released)
  if at <= 0 or at > now then at = now end
  if released then return math.min(at, from) end
  -- It was not among what a person released, so it counts, though its object was deleted before that.
  if at > now - window and at <= from then return from + 1 end
  return at
end

trim(passed, now - math.max(window, KEPT))
trim(waiting, math.min(from, now - KEPT))
for i, item in ipairs(args[2]) do
  local uid = item[1]
  if redis.call('ZSCORE', passed, uid) then
    answers[i] = 1
  else
    local held = redis.call('ZSCORE', waiting, uid)
    local released = held and tonumber(held) <= from
    local at = counting_from(item[2], released)
    if not (tripped or released) and at > since and counted >= limit then
      tripped, why, newly = now, args[5], 1
      redis.call('HSET', record, 'guard_tripped', now, 'guard_why', why)
      count('guard_tripped', 1)
      decide('guard tripped', source, why)
    end
    if tripped and not released then
      -- After the last release, also in the same millisecond and with a clock that went back.
      if not held then redis.call('ZADD', waiting, math.max(now, from + 1), uid) end
      answers[i] = 0
    else
      redis.call('ZADD', passed, at, uid)
      if held then redis.call('ZREM', waiting, uid) end
      if at > since then counted = counted + 1 end
      answers[i] = 1
    end
  end
end
-- A source that is not asked for any more leaves nothing behind.
redis.call('PEXPIRE', passed, 2 * math.max(window, KEPT))
local name = 'guard/' .. source .. '/'
redis.call('HSET', stem .. 'stats', name .. 'counted', counted, name .. 'tripped', tripped and 1 or 0,
           name .. 'held', redis.call('ZCOUNT', waiting, '(' .. from, '+inf'))
return answer({answers, tripped and why or '', newly, counted})
