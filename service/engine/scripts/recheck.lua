-- Rechecks deletions at once after an annotation changed: a held deletion goes back on the stream, and refused jobs of
-- a running one are due now. Nothing else is changed. args: {why, names of an event's fields, most jobs to check, list
-- of {deletion id, first job number}}; answers for each {its state, deletions or jobs that are due now, next job number
-- (-1: all were checked)}.
if repeated then return repeated end
local why, names, left, found = args[1], args[2], args[3], {}

-- A deletion without a time for planning again needs an operator, and a suspect one must wait for its time.
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

-- Whether the job was refused and is due now; leased jobs are not changed. It stays in its index until the next
-- attempt, which decides whether it is still held, and since when.
local function bring_forward(job, text)
  -- Most jobs were not refused and need not be decoded.
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

-- Returns how many jobs are due now, and where to continue.
local function look_through(id, key, first)
  local plan, last, late = unpack(redis.call('HMGET', key, 'plan', 'last', 'late'))
  if not plan or not last or redis.call('EXISTS', stem .. 'held', stem .. 'waiting') == 0 then return 0, -1 end
  local most, jobs, forward = job_count(last, late) - 1, id .. '#' .. plan, 0
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
