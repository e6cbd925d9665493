-- Gives back the jobs of leases that ran out. A job whose worker died is tried alone from then on; one that kills
-- its worker again and again while alone is set aside. Deaths of other workers at the same time (a storm) count
-- against nobody, unless it goes on and on.
-- args: {most, deaths alone until set aside, silence in ms after which a worker counts as dead, storm in ms, deaths
-- in all}; answers {jobs given back, jobs set aside, when the next lease ends (0: none)}.
if repeated then return repeated end
local most, deaths, silence, storm, limit = args[1], args[2], args[3], args[4], args[5]
local given, aside = {}, {}
redis.call('ZREMRANGEBYSCORE', stem .. 'deaths', '-inf', now - storm)

local function stormy(job, suspect, worker)
  for _, death in ipairs(redis.call('ZRANGE', stem .. 'deaths', 0, 99)) do
    local who, cause = string.match(death, '^(%S+) ?(.*)$')
    if who ~= worker and who ~= suspect and cause ~= job then return true end
  end
  return false
end

local function give_back(lane, job)
  local holder = redis.call('HGET', stem .. 'holders:' .. lane, job)
  local worker = holder and split(holder)[2] or ''
  local heard = redis.call('ZSCORE', stem .. 'workers', worker)
  local record = redis.call('HMGET', job_key(job), 'urgent', 'alone', 'kills', 'fallen', 'suspect', 'strategy',
                            'deletion', 'stage')
  redis.call('ZREM', stem .. 'leases:' .. lane, job)
  redis.call('HDEL', stem .. 'holders:' .. lane, job)
  fresh(lane)
  if not record[6] then
    redis.call('ZREM', stem .. 'jobs', job)
    decide('lost', job, 'its record is gone')
    count('lost', 1)
    return
  end
  given[#given + 1] = job
  if heard and now - tonumber(heard) < silence then
    -- Its worker lives: it lost the lease, not its life.
    redis.call('HSET', job_key(job), 'due', now)
    enter(job, lane, record[1] == '1', now)
    return
  end
  local alone = record[2] == '1'
  redis.call('ZADD', stem .. 'deaths', now, worker .. ' ' .. (alone and job or ''))
  if not alone then
    redis.call('HSET', job_key(job), 'alone', 1, 'suspect', worker, 'due', now)
    redis.call('ZADD', stem .. 'alone', now, job)
    return
  end
  local fallen = tonumber(record[4] or 0) + 1
  local kills = tonumber(record[3] or 0)
  if not stormy(job, record[5] or '', worker) then kills = kills + 1 end
  redis.call('HSET', job_key(job), 'kills', kills, 'fallen', fallen)
  if kills < deaths and fallen < limit then
    local due = now + fallen * 1000
    redis.call('HSET', job_key(job), 'due', due)
    redis.call('ZADD', stem .. 'alone', due, job)
    return
  end
  local why = 'its worker died ' .. fallen .. ' times while it was tried alone'
  redis.call('HSET', job_key(job), 'state', record[6] == 'required' and 'aside' or 'dead', 'last_error', why, 'last_at', now)
  redis.call('ZADD', stem .. 'dead', now, job)
  decide('set aside', job, why)
  aside[#aside + 1] = job
  if record[6] ~= 'required' then
    redis.call('ZREM', stem .. 'jobs', job)
    redis.call('HINCRBY', deletion_key(record[7]), 'given_up', 1)
    job_ended(record[7], tonumber(record[8]))
  end
end

for _, lane in ipairs(redis.call('ZRANGEBYSCORE', stem .. 'leased', '-inf', now, 'LIMIT', 0, most)) do
  if #given >= most then break end
  local leases = stem .. 'leases:' .. lane
  for _, job in ipairs(redis.call('ZRANGEBYSCORE', leases, '-inf', now, 'LIMIT', 0, most - #given)) do
    give_back(lane, job)
  end
  local soonest = first_score(leases)
  if soonest then redis.call('ZADD', stem .. 'leased', soonest, lane)
  else redis.call('ZREM', stem .. 'leased', lane) end
end
count('reclaimed', #given)
count('set_aside', #aside)
close_books()
place()
if #given > 0 and redis.call('ZCARD', stem .. 'alone') > 0 then
  redis.call('XADD', stem .. 'wake', 'MAXLEN', '~', 100, '*', 'next', now)
end
return answer({given, aside, first_score(stem .. 'leased') or 0})
