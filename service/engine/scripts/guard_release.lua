-- Releases the guard of a source for an operator: deletions that were counted or held until now no longer count, later
-- ones do. args: {source, who}; answers {whether it had tripped (0|1)}.
if repeated then return repeated end
local source, who = args[1], args[2]
local record, waiting = stem .. 'source:' .. source, stem .. 'guarded:' .. source
if not redis.call('HGET', record, 'guard_tripped') then return answer({0}) end
-- Not before the last held deletion, in case the clock went back.
local last = redis.call('ZRANGE', waiting, -1, -1, 'WITHSCORES')[2]
local from = math.max(now, tonumber(last or 0))
redis.call('HSET', record, 'guard_from', from, 'guard_released', now, 'guard_released_by', who)
-- Admitted deletions stay admitted; only the count is reset.
redis.call('UNLINK', stem .. 'guard:' .. source)
-- The peak of owned objects is reset.
redis.call('HDEL', record, 'guard_tripped', 'guard_why', 'guard_counted', 'guard_owned')
count('guard_tripped', -1)
local name = 'guard/' .. source .. '/'
redis.call('HSET', stem .. 'stats', name .. 'counted', 0, name .. 'tripped', 0, name .. 'held', 0)
decide('guard released', source, 'by ' .. who)
return answer({1})
