-- The change of the number of shards is over for this shard: it may be attended again.
-- args: {shards, shards before, who}; answers {whether it was under way (0|1)}.
if repeated then return repeated end
local meta = stem .. 'meta'
if redis.call('HGET', meta, 'resharding') ~= tostring(args[1]) then return answer({0}) end
redis.call('HSET', meta, 'shards', args[1])
-- History stays in the shards where it was made: until when, and in how many, is for those who read it.
local widest = math.max(args[1], args[2], tonumber(redis.call('HGET', meta, 'resharded_widest') or 0))
redis.call('HSET', meta, 'resharded_at', string.format('%.0f', clock[1] * 1000), 'resharded_widest', widest)
-- A shard that comes back finds the audit that it left to expire; what is added to it from now on must not go with it.
redis.call('PERSIST', stem .. 'audit')
redis.call('HDEL', meta, 'resharding', 'resharding_from')
redis.call('DEL', stem .. 'moved')
decide('resharded', args[2] .. ' to ' .. args[1], 'by ' .. args[3])
return answer({1})
