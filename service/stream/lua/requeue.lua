-- Walks the index of unfinished jobs in steps and puts back those that are in no place; puts back parked records of
-- versions that this process knows. args: {cursor, most, version}; answers {next cursor, put back, known again}.
if repeated then return repeated end
local version, back, known = args[3], 0, 0
local step = redis.call('ZSCAN', stem .. 'jobs', args[1], 'COUNT', args[2])

local function placed(job, lane)
  return redis.call('ZSCORE', lane_key(lane, true), job) or redis.call('ZSCORE', lane_key(lane, false), job)
    or redis.call('ZSCORE', stem .. 'leases:' .. lane, job) or redis.call('ZSCORE', stem .. 'alone', job)
    or redis.call('ZSCORE', stem .. 'newer', 'job:' .. job) or redis.call('ZSCORE', stem .. 'dead', job)
end

for i = 1, #step[2], 2 do
  local job = step[2][i]
  local record = redis.call('HMGET', job_key(job), 'lane', 'urgent', 'state', 'due')
  if not record[1] then
    redis.call('ZREM', stem .. 'jobs', job)
    decide('lost', job, 'its record is gone')
    count('lost', 1)
  elseif record[3] and record[3] ~= 'aside' then
    redis.call('ZREM', stem .. 'jobs', job)
  elseif not placed(job, record[1]) then
    if record[3] == 'aside' then
      redis.call('ZADD', stem .. 'dead', now, job)
    else
      -- Its due time survives: a wait is neither lost nor shortened.
      enter(job, record[1], record[2] == '1', tonumber(record[4] or now))
    end
    decide('requeued', job, 'it was in no place')
    back = back + 1
  end
end

for _, member in ipairs(redis.call('ZRANGE', stem .. 'newer', 0, args[2] - 1)) do
  local job = string.match(member, '^job:(.*)$')
  if job then
    local record = redis.call('HMGET', job_key(job), 'lane', 'urgent', 'v', 'due')
    if not record[1] then
      redis.call('ZREM', stem .. 'newer', member)
    elseif record[3] and tonumber(record[3]) and tonumber(record[3]) <= version then
      redis.call('ZREM', stem .. 'newer', member)
      enter(job, record[1], record[2] == '1', tonumber(record[4] or now))
      known = known + 1
    end
  else
    local kept = stem .. 'kept:' .. string.match(member, '^event:(.*)$')
    local written = redis.call('HGET', kept, 'v')
    if not written then
      redis.call('ZREM', stem .. 'newer', member)
    elseif tonumber(written) and tonumber(written) <= version then
      redis.call('XADD', stem .. 'events', '*', unpack(redis.call('HGETALL', kept)))
      redis.call('DEL', kept)
      redis.call('ZREM', stem .. 'newer', member)
      known = known + 1
    end
  end
end
count('requeued', back)
place()
return answer({step[1], back, known})
