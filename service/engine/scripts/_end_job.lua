-- Ends jobs by a decision instead of an attempt: removes them from all sets and updates the counters.

-- The stage of a job whose record can't be decoded.
local function stage_of(name)
  local _, number, id = home(name)
  local flat, record = redis.call('HGETALL', deletion_key(id)), {}
  for i = 1, #flat, 2 do record[flat[i]] = flat[i + 1] end
  return stage_with(record, tonumber(number))
end

-- Breaks the lease: the holder is stopped before its next destructive call, and its settle changes nothing.
local function end_job(job, record, why)
  local lane = record.lane
  local _, _, id = home(job)
  redis.call('ZREM', lane_key(lane, true), job)
  redis.call('ZREM', lane_key(lane, false), job)
  redis.call('ZREM', stem .. 'leases:' .. lane, job)
  redis.call('ZREM', stem .. 'alone', job)
  redis.call('ZREM', stem .. 'dead', job)
  redis.call('ZREM', stem .. 'newer', 'job:' .. job)
  unshow('job:' .. job)
  record.state, record.last_at, record.last_error = 'abandoned', now, why
  record.v = record.v or 1
  write(job, record)
  redis.call('HINCRBY', deletion_key(id), 'abandoned', 1)
  count('abandoned', 1)
  if lane ~= '' then fresh(lane) end
  job_ended(id, record.stage)
end
