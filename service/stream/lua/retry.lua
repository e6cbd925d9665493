-- A person wants a job tried now: it is due at once, with its attempts counted anew.
-- args: {job, who}; answers {state}: `due`, `leased` (it is being tried), `waiting` (its stage is not open), the
-- final state it is in, or `unknown`.
if repeated then return repeated end
local job, who = args[1], args[2]
local record = redis.call('HMGET', job_key(job), 'lane', 'urgent', 'state', 'strategy')
if not record[1] then return answer({'unknown'}) end
local lane, state = record[1], record[3]
if state and state ~= 'aside' then return answer({state}) end
if redis.call('ZSCORE', stem .. 'leases:' .. lane, job) then return answer({'leased'}) end
if not redis.call('ZSCORE', stem .. 'jobs', job) then return answer({'waiting'}) end
redis.call('ZREM', stem .. 'dead', job)
redis.call('ZREM', stem .. 'alone', job)
redis.call('ZREM', stem .. 'newer', 'job:' .. job)
redis.call('ZREM', stem .. 'held', 'job:' .. job)
redis.call('HDEL', job_key(job), 'state', 'alone', 'kills', 'fallen', 'suspect', 'held')
redis.call('HSET', job_key(job), 'attempts', 0, 'waits', 0, 'due', now)
enter(job, lane, record[2] == '1', now)
decide('retried', job, 'by ' .. who)
place()
return answer({'due'})
