-- A person gives a job up: its stage goes on without it. A lease is broken; its holder's settle changes nothing.
-- args: {job, who}; answers {state}: `abandoned`, the final state it is in, or `unknown`.
if repeated then return repeated end
local job, who = args[1], args[2]

-- The stage of a job whose record can't be read: the one whose range holds its number.
local function stage_of(name)
  local _, number, id = home(name)
  local flat = redis.call('HGETALL', deletion_key(id))
  for i = 1, #flat, 2 do
    local stage = string.match(flat[i], '^stage%.(%d+)$')
    local parts = stage and split(flat[i + 1])
    if parts and tonumber(number) >= tonumber(parts[2]) and tonumber(number) < tonumber(parts[2]) + tonumber(parts[3]) then
      return tonumber(stage)
    end
  end
end

local record, unreadable = read(job)
if unreadable then record = {lane = '', stage = stage_of(job)} end
if not record or not record.stage then return answer({'unknown'}) end
local lane, state = record.lane, record.state
if state and state ~= 'aside' then return answer({state}) end
local _, _, id = home(job)
local plan, release = unpack(redis.call('HMGET', deletion_key(id), 'plan', 'release'))
if not plan or string.match(job, '#(%d+)%.%d+$') ~= plan then return answer({'unknown'}) end
if record.stage == tonumber(release) then return answer({'release'}) end
redis.call('ZREM', lane_key(lane, true), job)
redis.call('ZREM', lane_key(lane, false), job)
redis.call('ZREM', stem .. 'leases:' .. lane, job)
redis.call('ZREM', stem .. 'alone', job)
redis.call('ZREM', stem .. 'dead', job)
redis.call('ZREM', stem .. 'newer', 'job:' .. job)
redis.call('ZREM', stem .. 'held', 'job:' .. job)
record.state, record.last_at, record.last_error = 'abandoned', now, 'abandoned by ' .. who
record.v = record.v or 1
write(job, record)
redis.call('HINCRBY', deletion_key(id), 'abandoned', 1)
decide('abandoned', job, 'by ' .. who)
count('abandoned', 1)
if lane ~= '' then fresh(lane) end
job_ended(id, record.stage)
close_books()
place()
return answer({'abandoned'})
