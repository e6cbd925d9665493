-- Keeps events that can't be planned, whole and with the reason, and acks them, so that the stream goes on.
-- args: list of {entry, where (held | newer), why, deletion id or '', event fields if it has an id}; answers how many
-- were kept. What can't be read is copied from the stream itself: its bytes may be no text that could travel.
if repeated then return repeated end
local acked, kept = {}, 0
for _, event in ipairs(args) do
  local entry, where, why, id = event[1], event[2], event[3], event[4]
  -- The entry is the proof that nobody settled it meanwhile.
  local found = redis.call('XRANGE', stem .. 'events', entry, entry)
  if #found > 0 then
    local member = 'event:' .. entry
    if id ~= '' then
      member = 'deletion:' .. id
      if redis.call('HSETNX', deletion_key(id), 'published_at', now) == 1 then
        redis.call('HSET', deletion_key(id), 'entry', entry)
        redis.call('ZADD', stem .. 'open', now, id)
      end
      redis.call('HSET', deletion_key(id), 'state', 'held', 'held', why, 'held_at', now, unpack(event[5]))
      redis.call('HDEL', deletion_key(id), 'event')
    else
      spread('HSET', stem .. 'kept:' .. entry, found[1][2])
      redis.call('HSET', stem .. 'why:' .. entry, 'why', why, 'at', now)
    end
    redis.call('ZADD', stem .. where, now, member)
    decide(where, member, why)
    acked[#acked + 1] = entry
    kept = kept + 1
  end
end
if #acked > 0 then
  spread('XACK', stem .. 'events', acked, 'planners')
  spread('XDEL', stem .. 'events', acked)
end
count('kept', kept)
return answer({kept})
