-- A person gives a job up: its stage goes on without it. A lease is broken; its holder's settle changes nothing.
-- args: {job, who}; answers {state}: `abandoned`, the final state it is in, or `unknown`.
if repeated then return repeated end
local job, who = args[1], args[2]
local record = redis.call('HMGET', job_key(job), 'lane', 'state', 'deletion', 'stage')
if not record[1] then return answer({'unknown'}) end
local lane, state = record[1], record[2]
if state and state ~= 'aside' then return answer({state}) end
local plan, release = unpack(redis.call('HMGET', deletion_key(record[3]), 'plan', 'release'))
if not plan or string.match(job, '#(%d+)%.%d+$') ~= plan then return answer({'unknown'}) end
if record[4] == release then return answer({'release'}) end
redis.call('ZREM', lane_key(lane, true), job)
redis.call('ZREM', lane_key(lane, false), job)
redis.call('ZREM', stem .. 'leases:' .. lane, job)
redis.call('HDEL', stem .. 'holders:' .. lane, job)
redis.call('ZREM', stem .. 'alone', job)
redis.call('ZREM', stem .. 'dead', job)
redis.call('ZREM', stem .. 'newer', 'job:' .. job)
redis.call('ZREM', stem .. 'held', 'job:' .. job)
redis.call('ZREM', stem .. 'jobs', job)
redis.call('HSET', job_key(job), 'state', 'abandoned', 'last_at', now, 'last_error', 'abandoned by ' .. who)
redis.call('HINCRBY', deletion_key(record[3]), 'abandoned', 1)
decide('abandoned', job, 'by ' .. who)
count('abandoned', 1)
fresh(lane)
job_ended(record[3], tonumber(record[4]))
close_books()
place()
return answer({'abandoned'})
