-- The change of the number of shards is over for this shard: it may be attended again.
-- args: {shards, shards before, who}; answers {whether it was under way (0|1)}.
if repeated then return repeated end
local meta = stem .. 'meta'
if redis.call('HGET', meta, 'resharding') ~= tostring(args[1]) then return answer({0}) end
redis.call('HSET', meta, 'shards', args[1])
redis.call('HDEL', meta, 'resharding', 'resharding_from')
redis.call('DEL', stem .. 'moved')
decide('resharded', args[2] .. ' to ' .. args[1], 'by ' .. args[3])
return answer({1})
