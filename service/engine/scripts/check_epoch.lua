-- Called when a process connects to a shard, or reconnects: checks the shard count and the epoch, or creates them.
-- args: {shard count, replication id, epoch known before ('' : none), a new epoch's name}; answers {count stored,
-- epoch, lost (0|1): writes may have been lost since the epoch or the replication id that was known}.
if repeated then return repeated end
local meta = stem .. 'meta'
local known = redis.call('HMGET', meta, 'shards', 'epoch', 'replid', 'resharding')
if known[4] then return answer({-tonumber(known[4]), known[2] or '', 0}) end
if known[1] and tonumber(known[1]) ~= args[1] then return answer({tonumber(known[1]), known[2] or '', 0}) end
local lost = 0
local function ask_for_relist(why)
  lost = 1
  redis.call('HSET', meta, 'epoch', args[4], 'relist', now, 'relist_why', why)
  decide('relist', args[4], why)
end
if not known[2] then
  redis.call('HSET', meta, 'shards', args[1], 'epoch', args[4], 'replid', args[2], 'since', now)
  if args[3] ~= '' then ask_for_relist('the shard came back empty') end
else
  if known[3] ~= args[2] then
    redis.call('HSET', meta, 'replid', args[2])
    ask_for_relist('the replication id changed: a restart or a failover may have lost writes')
  elseif args[3] ~= '' and args[3] ~= known[2] then
    -- The epoch may have been created by a new process, for which an emptied shard looks like a new one.
    lost = 1
    if redis.call('HSETNX', meta, 'relist', now) == 1 then
      redis.call('HSET', meta, 'relist_why', 'another epoch than the one that was known')
      decide('relist', known[2], 'another epoch than the one that was known')
    end
  end
end
redis.pcall('XGROUP', 'CREATE', stem .. 'events', 'planners', '0', 'MKSTREAM')
return answer({args[1], redis.call('HGET', meta, 'epoch'), lost})
