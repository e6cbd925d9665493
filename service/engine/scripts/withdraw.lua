-- Withdraws a deletion: one that is not planned yet is dropped, the remaining jobs of a running one are cancelled, a
-- bounded number at a time and the last stages first, so that none opens only to be cancelled. Its release is then
-- carried out. args: {deletion id ('': only continue with those under way), why, most jobs}; answers {state, deletions
-- under way}: the state is `withdrawn` or `dropped`, `unknown`, or the present one where it is too late for a change.
if repeated then return repeated end
local id, why, most = args[1], args[2], args[3]
local under_way = stem .. 'withdrawing'

-- Returns the resulting state.
local function begin()
  local key = deletion_key(id)
  local state, known = unpack(redis.call('HMGET', key, 'state', 'withdrawn'))
  if not state then return 'unknown' end
  if state == 'published' or is_held(state) then
    redis.call('HSET', key, 'state', 'dropped', 'done_at', now, 'withdrawn', why)
    redis.call('HDEL', key, 'again_at')
    redis.call('ZREM', stem .. 'open', id)
    unshow('deletion:' .. id)
    redis.call('ZADD', stem .. 'finished', now, id)
    state = 'dropped'
  elseif known then
    return state == 'dropped' and state or 'withdrawn'
  elseif state == 'running' then
    local last, late = unpack(redis.call('HMGET', key, 'last', 'late'))
    local jobs = job_count(last, late)
    -- The release is the last job, unless targets were found late.
    if not late then jobs = jobs - 1 end
    redis.call('HSET', key, 'withdrawn', why, 'withdrawing', jobs)
    redis.call('ZADD', under_way, now, id)
    state = 'withdrawn'
  else
    return state
  end
  decide('withdrawn', id, why)
  count('withdrawn', 1)
  return state
end

-- Cancels jobs from the highest number down, up to the budget, but not the release; returns how many were checked.
local function cancel(one, budget)
  local key = deletion_key(one)
  local state, plan, cursor, reason, release =
    unpack(redis.call('HMGET', key, 'state', 'plan', 'withdrawing', 'withdrawn', 'release'))
  local last = tonumber(cursor)
  if state ~= 'running' or not plan or not last or last <= 0 then
    redis.call('ZREM', under_way, one)
    redis.call('HDEL', key, 'withdrawing')
    return 1
  end
  local part, numbers = math.min(last, budget), {}
  for i = 1, part do numbers[i] = last - i end
  local jobs = one .. '#' .. plan
  for i, text in ipairs(redis.call('HMGET', stem .. 'job:' .. jobs, unpack(numbers))) do
    local job = jobs .. '.' .. string.format('%.0f', numbers[i])
    local record = text and (decoded(text) or {lane = '', stage = stage_of(job)})
    local going = record and record.stage and record.stage ~= tonumber(release)
    if going and (not record.state or record.state == 'aside') then
      end_job(job, record, 'cancelled: ' .. (reason or ''))
    end
  end
  redis.call('HSET', key, 'withdrawing', last - part)
  return part
end

local state = id ~= '' and begin() or ''
local left = math.min(most, SPREAD)
for _, one in ipairs(redis.call('ZRANGE', under_way, 0, 99)) do
  if left <= 0 then break end
  left = left - cancel(one, left)
end
close_books()
place()
return answer({state, redis.call('ZCARD', under_way)})
