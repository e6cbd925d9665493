-- Holds events that can't be planned: stores them with the reason and acknowledges their entries.
-- args: list of {entry, where (held | waiting | newer), why, deletion id or '', event fields if it has an id, ms until
-- it is planned again (0: never), exact (if not, doubled each time), suspect (its planners died: it is planned alone
-- then)}; answers how many were held. Undecodable events are copied from the stream itself, since their bytes may not
-- be text.
if repeated then return repeated end
local acked, kept = {}, 0
-- Returns the index member and the time since when it is held, or nil where the deletion is planned already: then its
-- entry is obsolete. If it is held again for the same kind after being planned again, the original time is kept.
local function hold_deletion(id, entry, where, why, fields, again, exact, suspect)
  local key = deletion_key(id)
  local state, before, since = unpack(redis.call('HMGET', key, 'state', 'held_as', 'held_since'))
  if state and state ~= 'published' and not is_held(state) then return nil end
  if before ~= where or not since then since = moment() end
  if is_held(state) and state ~= where then unshow('deletion:' .. id) end
  if not state then
    redis.call('HSET', key, 'published_at', now, 'entry', entry)
    redis.call('ZADD', stem .. 'open', now, id)
  end
  redis.call('HSET', key, 'state', where, 'held', why, 'held_at', now, 'held_as', where, 'held_since', since, unpack(fields))
  redis.call('HDEL', key, 'event', 'again_at')
  if again and again > 0 then
    if not exact then again = math.min(300000, again * 2 ^ math.min(redis.call('HINCRBY', key, 'holds', 1), 20)) end
    redis.call('HSET', key, 'again_at', now + again)
  end
  -- Keeps the death counts; the names of dead planners are not needed after the wait.
  local known = suspect and redis.call('HGET', stem .. 'suspects', entry)
  if known then redis.call('HSET', key, 'suspect', string.match(known, '^%d+ %d+ %d+')) end
  return 'deletion:' .. id, since
end

local function keep_event(entry, why, fields)
  spread('HSET', stem .. 'kept:' .. entry, fields)
  redis.call('HSET', stem .. 'why:' .. entry, 'why', why, 'at', now)
  return 'event:' .. entry
end

for _, event in ipairs(args) do
  local entry, where, why, id = event[1], event[2], event[3], event[4]
  -- The entry exists only if no other planner has handled it meanwhile.
  local found = redis.call('XRANGE', stem .. 'events', entry, entry)
  if #found > 0 then
    local member, since
    if id ~= '' then member, since = hold_deletion(id, entry, where, why, event[5], event[6], event[7], event[8])
    else member = keep_event(entry, why, found[1][2]) end
    if member then
      redis.call('ZADD', stem .. where, since or now, member)
      decide(where, member, why)
      kept = kept + 1
    end
    acked[#acked + 1] = entry
  end
end
if #acked > 0 then
  spread('XACK', stem .. 'events', acked, 'planners')
  spread('XDEL', stem .. 'events', acked)
  spread('HDEL', stem .. 'suspects', acked)
end
count('kept', kept)
return answer({kept})
