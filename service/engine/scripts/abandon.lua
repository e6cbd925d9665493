-- Abandons a job for an operator: its stage continues without it. A lease is broken; its holder's settle changes
-- nothing. args: {job, who}; answers {state}: `abandoned`, the final state it is in, or `unknown`.
if repeated then return repeated end
local job, who = args[1], args[2]

local record, unreadable = read(job)
if unreadable then record = {lane = '', stage = stage_of(job)} end
if not record or not record.stage then return answer({'unknown'}) end
local state = record.state
if state and state ~= 'aside' then return answer({state}) end
local _, number, id = home(job)
local plan, release, last, late = unpack(redis.call('HMGET', deletion_key(id), 'plan', 'release', 'last', 'late'))
if not plan or string.match(job, '#(%d+)%.%d+$') ~= plan then return answer({'unknown'}) end
-- Of an append that is not finished.
if tonumber(number) >= job_count(last, late) then return answer({'unknown'}) end
if record.stage == tonumber(release) then return answer({'release'}) end
end_job(job, record, 'abandoned by ' .. who)
-- Stored outside of the plan, so that the job stays abandoned when the deletion is planned again.
redis.call('HSET', stem .. 'abandoned:' .. id, job, cjson.encode(record))
decide('abandoned', job, 'by ' .. who)
close_books()
place()
return answer({'abandoned'})
