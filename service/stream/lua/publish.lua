-- Adds events unless their deletion ids are known, and enters them in `open` as published.
-- args: list of {deletion id, flat event fields, event as JSON}; answers {state, entry} for each, state `added` or what
-- it is in. Until it is planned the record keeps the event as one text: publishing is the path that bursts.
if repeated then return repeated end
local answers, opened = {}, {}
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
    answers[i] = {known[1] or 'lost', known[2] or ''}
  end
end
if #opened > 0 then
  spread('ZADD', stem .. 'open', opened)
  count('published', #opened / 2)
end
return answer(answers)
