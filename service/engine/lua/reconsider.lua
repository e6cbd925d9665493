-- What policy goes by has changed on objects that are going: what was held because of it is looked at again at once.
-- A held deletion goes back on the stream, refused jobs of one that is under way are due now; nothing else is touched.
-- args: {why, names of an event's fields, most jobs to look at, list of {deletion id, first job number}}; answers for
-- each {state it was in, deletions or jobs brought forward, next job number (-1: all were seen)}.
if repeated then return repeated end
local why, names, left, found = args[1], args[2], args[3], {}

-- What is not looked at again by itself either waits for a person who says so; what kills planners waits for its time.
local function publish_again(id, key)
  local again, suspect = unpack(redis.call('HMGET', key, 'again_at', 'suspect'))
  if not again or suspect then return 0 end
  local values, fields = redis.call('HMGET', key, unpack(names)), {}
  for i, name in ipairs(names) do
    if values[i] and values[i] ~= '' then
      fields[#fields + 1] = name
      fields[#fields + 1] = values[i]
    end
  end
  if #fields == 0 then return 0 end
  redis.call('HSET', key, 'state', 'published', 'entry', redis.call('XADD', stem .. 'events', '*', unpack(fields)))
  redis.call('HDEL', key, 'held', 'again_at')
  unshow('deletion:' .. id)
  decide('replayed', 'deletion:' .. id, why)
  return 1
end

-- Answers whether the job was refused and is due now; one in somebody's hands is left to him. It is shown as before until
-- it was tried: what comes of that says whether it still is, and since when.
local function bring_forward(job, text)
  -- Most jobs were not refused: those are not even decoded.
  if not text or not string.find(text, '"refused"', 1, true) then return false end
  local record = decoded(text)
  if not record or record.state or record.alone == 1 or record.verdict ~= 'refused' then return false end
  if record.held ~= 1 and record.waiting ~= 1 then return false end
  local due = redis.call('ZSCORE', lane_key(record.lane, is_urgent(record)), job)
  if not due or tonumber(due) <= now then return false end
  record.waits, record.due = nil, now
  write(job, record)
  enter(job, record.lane, is_urgent(record), now)
  return true
end

-- Answers how many were brought forward, and where to go on.
local function look_through(id, key, first)
  local plan, last = unpack(redis.call('HMGET', key, 'plan', 'last'))
  if not plan or not last or redis.call('EXISTS', stem .. 'held', stem .. 'waiting') == 0 then return 0, -1 end
  local most, jobs, forward = tonumber(split(last)[1]), id .. '#' .. plan, 0
  while first <= most and left > 0 do
    local part, numbers = math.min(most - first + 1, left, 200), {}
    for i = 1, part do numbers[i] = first + i - 1 end
    for i, text in ipairs(redis.call('HMGET', stem .. 'job:' .. jobs, unpack(numbers))) do
      if bring_forward(jobs .. '.' .. string.format('%.0f', numbers[i]), text) then forward = forward + 1 end
    end
    first, left = first + part, left - part
  end
  if forward > 0 then decide('retried', id, string.format('%d refused jobs: ', forward) .. why) end
  return forward, first <= most and first or -1
end

for i, one in ipairs(args[4]) do
  local id, key = one[1], deletion_key(one[1])
  local state, forward, next = redis.call('HGET', key, 'state') or '', 0, -1
  if is_held(state) then
    forward = publish_again(id, key)
  elseif state == 'running' or state == 'releasing' then
    forward, next = look_through(id, key, one[2])
  end
  found[i] = {state, forward, next}
end
place()
return answer(found)
