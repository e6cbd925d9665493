-- Removes data from this shard that a reshard has copied to another one, in one step, so that no part is left behind.
-- args: {keys, sorted sets {name, {member, ...}}, lanes, entries of events}; answers {}.
local keys = {}
for i, name in ipairs(args[1]) do keys[i] = stem .. name end
for first = 1, #keys, SPREAD do redis.call('UNLINK', unpack(keys, first, math.min(first + SPREAD - 1, #keys))) end
for _, sorted in ipairs(args[2]) do spread('ZREM', stem .. sorted[1], sorted[2]) end
for _, lane in ipairs(args[3]) do fresh(lane) end
if #args[4] > 0 then
  redis.pcall('XACK', stem .. 'events', 'planners', unpack(args[4]))
  redis.call('XDEL', stem .. 'events', unpack(args[4]))
end
place()
return cmsgpack.pack({})
