-- Replays or drops a held event or deletion for an operator. It also applies to a deletion that was held and is being
-- planned again: that plan becomes stale.
-- args: {member, replay (1) or drop (0), who, a deletion's event fields}; answers {result}: `leftover` where an event
-- was dropped whose deletion continues with another entry.
if repeated then return repeated end
local member, replay, who = args[1], args[2] == 1, args[3]
local kind, id = string.match(member, '^(%a+):(.*)$')
local state, held_at, entry
if kind == 'deletion' then state, held_at, entry = unpack(redis.call('HMGET', deletion_key(id), 'state', 'held_at', 'entry')) end
-- A plan removes `held_at`: a deletion that lost its jobs and is planned again was not held.
local replanned = state == 'published' and held_at
local shown = redis.call('ZSCORE', stem .. 'held', member) or redis.call('ZSCORE', stem .. 'waiting', member)
if not kind or not (replanned or shown) then return answer({'unknown'}) end
local word = replay and 'replayed' or 'dropped'
local function drop(deletion)
  redis.call('HSET', deletion_key(deletion), 'state', 'dropped', 'done_at', now)
  redis.call('ZREM', stem .. 'open', deletion)
  redis.call('ZADD', stem .. 'finished', now, deletion)
end
if kind == 'event' then
  local known = deletion_of_kept(id)
  if replay and redis.call('EXISTS', stem .. 'kept:' .. id) == 1 then
    if not add_kept(id) then return answer({'no event: it has too many fields'}) end
  elseif known and redis.call('HGET', deletion_key(known), 'state') == 'published' then
    drop(known)
  elseif known then
    -- Planned with another entry meanwhile: only the obsolete event is removed.
    word = 'leftover'
  end
  redis.call('DEL', stem .. 'kept:' .. id, stem .. 'why:' .. id)
elseif kind == 'deletion' then
  local key = deletion_key(id)
  if replanned and replay then
    -- The present planner may have checked before the replay. A suspect entry is planned alone, and once.
    if not redis.call('HGET', stem .. 'suspects', entry or '') then add_again(key, args[4]) end
  elseif is_held(state) and replay then
    add_again(key, args[4])
    redis.call('HSET', key, 'state', 'published')
    redis.call('HDEL', key, 'held', 'again_at')
  elseif replanned or is_held(state) then
    drop(id)
  end
else
  return answer({'a job: use retry or abandon'})
end
unshow(member)
decide(replay and 'replayed' or 'dropped', member, 'by ' .. who)
return answer({word})
