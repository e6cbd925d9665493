-- A person's word on something held: an event or deletion is put back on the stream, or dropped for good.
-- args: {member, replay (1) or drop (0), who, a deletion's event fields}; answers {what came of it}.
if repeated then return repeated end
local member, replay, who = args[1], args[2] == 1, args[3]
local kind, id = string.match(member, '^(%a+):(.*)$')
if not kind or not redis.call('ZSCORE', stem .. 'held', member) then return answer({'unknown'}) end
local function drop(deletion)
  redis.call('HSET', deletion_key(deletion), 'state', 'dropped', 'done_at', now)
  redis.call('ZREM', stem .. 'open', deletion)
  redis.call('ZADD', stem .. 'finished', now, deletion)
end
if kind == 'event' then
  local known = deletion_of_kept(id)
  if replay and redis.call('EXISTS', stem .. 'kept:' .. id) == 1 then
    if not add_kept(id) then return answer({'no event: it has too many fields'}) end
  -- Planned by way of another entry meanwhile: then only the leftover goes.
  elseif known and redis.call('HGET', deletion_key(known), 'state') == 'published' then drop(known) end
  redis.call('DEL', stem .. 'kept:' .. id, stem .. 'why:' .. id)
elseif kind == 'deletion' then
  local key = deletion_key(id)
  if redis.call('HGET', key, 'state') == 'held' then
    if replay then
      add_again(key, args[4])
      redis.call('HSET', key, 'state', 'published')
      redis.call('HDEL', key, 'held', 'again_at')
    else
      drop(id)
    end
  end
else
  return answer({'a job: use retry or abandon'})
end
redis.call('ZREM', stem .. 'held', member)
decide(replay and 'replayed' or 'dropped', member, 'by ' .. who)
return answer({replay and 'replayed' or 'dropped'})
