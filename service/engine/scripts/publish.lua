-- Adds events unless their deletion ids are known, and enters them in `open` as published.
-- args: list of {deletion id, flat event fields, event as JSON}; answers {state, entry} for each, with the state
-- `added` or the existing one. Until it is planned the record has the event as one text, which is cheaper in bursts.
if repeated then return repeated end
local answers, opened = {}, {}

-- Whether a held deletion has another name than the event, or (unless it is planned again soon) another source. The
-- name of a uid never changes, so that the held event is wrong and is replaced.
local function is_misnamed(key, fields)
  local told = {name = '', namespace = '', source = ''}
  for i = 1, #fields, 2 do
    if told[fields[i]] then told[fields[i]] = tostring(fields[i + 1]) end
  end
  local known = redis.call('HMGET', key, 'name', 'namespace', 'source', 'again_at', 'suspect')
  local name, namespace, source, again, suspect = unpack(known)
  if (name or '') ~= told.name or (namespace or '') ~= told.namespace then return true end
  return (not again or suspect) and (source or '') ~= told.source
end

local function replace(id, key, event)
  local entry = redis.call('XADD', stem .. 'events', '*', unpack(event[2]))
  redis.call('HSET', key, 'state', 'published', 'entry', entry, 'event', event[3])
  redis.call('HDEL', key, 'held', 'held_at', 'held_as', 'held_since', 'again_at', 'holds', 'suspect', 'name', 'namespace', 'source', 'data')
  unshow('deletion:' .. id)
  decide('published again', id, 'what was held named another object')
  return entry
end

for i, event in ipairs(args) do
  local key = deletion_key(event[1])
  if redis.call('HSETNX', key, 'state', 'published') == 1 then
    local entry = redis.call('XADD', stem .. 'events', '*', unpack(event[2]))
    redis.call('HSET', key, 'published_at', now, 'entry', entry, 'event', event[3])
    opened[#opened + 1] = now
    opened[#opened + 1] = event[1]
    answers[i] = {'added', entry}
  else
    local known = redis.call('HMGET', key, 'state', 'entry')
    if is_held(known[1]) and is_misnamed(key, event[2]) then
      answers[i] = {'added', replace(event[1], key, event)}
    else
      answers[i] = {known[1] or 'lost', known[2] or ''}
    end
  end
end
if #opened > 0 then
  spread('ZADD', stem .. 'open', opened)
  count('published', #opened / 2)
end
return answer(answers)
