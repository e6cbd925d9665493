-- Admits deletions of a source up to the limit of a window. Once the limit was exceeded, the guard has tripped and
-- holds every new deletion until an operator releases it. Distinct uids count, by the deletion times of their objects.
-- args: {source, list of {uid, deleted at in ms (0: unknown)}, limit, window in ms, reason if it trips now}; answers
-- {admitted (1) or held (0) for each, reason, tripped by this call (0|1), count}.
if repeated then return repeated end
local source, limit, window = args[1], args[3], args[4]
local record, counting = stem .. 'source:' .. source, stem .. 'guard:' .. source
local passed, waiting = stem .. 'passed:' .. source, stem .. 'guarded:' .. source
-- An admitted uid stays admitted, and counts, for a week after its last check: planning may be retried long after the
-- window, and a late event of an old deletion must be counted with the others of its time.
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

-- The highest count of a window around the time of a deletion: the window before it, the window after it, and where
-- neither is full but both together could be, some windows in between.
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
  -- A grace period puts the deletion time into the future; then the time of the first check counts.
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
      -- After the last release, even in the same millisecond or after the clock went back.
      if not held then redis.call('ZADD', waiting, math.max(now, from + 1), uid) end
      answers[i] = 0
    else
      redis.call('ZADD', passed, now, uid)
      if held then redis.call('ZREM', waiting, uid) end
      -- Released deletions are not counted: an operator confirmed them.
      if not released then redis.call('ZADD', counting, at, uid) end
      answers[i] = 1
    end
  end
end
-- The data of a source that is no longer checked expires.
for _, key in ipairs({passed, counting}) do redis.call('PEXPIRE', key, 2 * KEPT) end
-- The window that tripped the guard may be long past; its count is shown while the guard holds.
local counted = math.max(most, between('(' .. now - window, '+inf'))
local name = 'guard/' .. source .. '/'
redis.call('HSET', stem .. 'stats', name .. 'counted', counted, name .. 'tripped', tripped and 1 or 0,
           name .. 'held', redis.call('ZCOUNT', waiting, '(' .. from, '+inf'))
return answer({answers, tripped and why or '', newly, counted})
