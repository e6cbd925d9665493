-- Ends a reshard for this shard: processes may connect again.
-- args: {shards, shards before, who}; answers {whether it was under way (0|1)}.
if repeated then return repeated end
local meta = stem .. 'meta'
if redis.call('HGET', meta, 'resharding') ~= tostring(args[1]) then return answer({0}) end
redis.call('HSET', meta, 'shards', args[1])
-- The audit is not moved: readers need the time of the reshard and the highest number of shards.
local widest = math.max(args[1], args[2], tonumber(redis.call('HGET', meta, 'resharded_widest') or 0))
redis.call('HSET', meta, 'resharded_at', string.format('%.0f', clock[1] * 1000), 'resharded_widest', widest)
-- The audit of a shard that was removed before has an expiry, which must not apply to new entries.
redis.call('PERSIST', stem .. 'audit')
redis.call('HDEL', meta, 'resharding', 'resharding_from')
redis.call('DEL', stem .. 'moved')
decide('resharded', args[2] .. ' to ' .. args[1], 'by ' .. args[3])
return answer({1})
