-- What has moved to another shard leaves this one, all of it in one step, so that nothing stays behind as a stump.
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
