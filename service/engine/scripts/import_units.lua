-- Imports data into this shard during a reshard. It can be repeated: hashes and set members are overwritten, and other
-- data is remembered in `moved` until the reshard has ended.
-- args: {hashes {name, {field, value, ...}}, sorted sets {name, {score, member, ...}}, lanes, events {origin, deletion
-- id or '', {field, value, ...}}, sums {origin, {field, number, ...}}}; answers {}.
local moved = stem .. 'moved'
for _, hash in ipairs(args[1]) do spread('HSET', stem .. hash[1], hash[2]) end
for _, sorted in ipairs(args[2]) do spread('ZADD', stem .. sorted[1], sorted[2]) end
for _, lane in ipairs(args[3]) do fresh(lane) end
for _, event in ipairs(args[4]) do
  local entry = redis.call('HGET', moved, event[1])
  if not entry then
    entry = redis.call('XADD', stem .. 'events', '*', unpack(event[3]))
    redis.call('HSET', moved, event[1], entry)
  end
  -- Its record was copied with the entry id of the old shard.
  if event[2] ~= '' and redis.call('EXISTS', deletion_key(event[2])) == 1 then
    redis.call('HSET', deletion_key(event[2]), 'entry', entry)
  end
end
for _, sum in ipairs(args[5]) do
  if redis.call('HSETNX', moved, sum[1], 1) == 1 then
    for i = 1, #sum[2], 2 do count(sum[2][i], sum[2][i + 1]) end
  end
end
place()
return cmsgpack.pack({})
