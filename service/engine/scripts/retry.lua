-- Retries a job now for an operator: it is due at once, and its attempts are reset.
-- args: {job, who}; answers {state}: `due`, `leased` (it is being tried), `waiting` (its stage is not open), the
-- final state it is in, or `unknown`.
if repeated then return repeated end
local job, who = args[1], args[2]
local record = read(job)
if not record then return answer({'unknown'}) end
local lane, state = record.lane, record.state
if state and state ~= 'aside' then return answer({state}) end
if redis.call('ZSCORE', stem .. 'leases:' .. lane, job) then return answer({'leased'}) end
local _, number, id = home(job)
local known = redis.call('HMGET', deletion_key(id), 'opened.' .. record.stage, 'cursor.' .. record.stage,
                         'stage.' .. record.stage, 'last', 'late')
-- Of an append that is not finished.
if known[4] and tonumber(number) >= job_count(known[4], known[5]) then return answer({'unknown'}) end
if not known[1] or (known[2] and tonumber(number) >= tonumber(split(known[3])[2]) + tonumber(known[2])) then
  return answer({'waiting'})
end
redis.call('ZREM', lane_key(lane, true), job)
redis.call('ZREM', lane_key(lane, false), job)
redis.call('ZREM', stem .. 'dead', job)
redis.call('ZREM', stem .. 'alone', job)
redis.call('ZREM', stem .. 'newer', 'job:' .. job)
unshow('job:' .. job)
for _, field in ipairs({'state', 'alone', 'kills', 'fallen', 'suspect', 'held', 'waiting', 'attempts', 'waits'}) do record[field] = nil end
record.due = now
write(job, record)
enter(job, lane, is_urgent(record), now)
decide('retried', job, 'by ' .. who)
place()
return answer({'due'})
