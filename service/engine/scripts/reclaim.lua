-- Reclaims the jobs of expired leases and of workers whose heartbeats ended. A job whose worker died is tried alone
-- from then on; one whose workers die repeatedly while it is tried alone is set aside. Where other workers died at the
-- same time (a storm), a job goes back to its lane the first time, and deaths are not counted, up to a total. args:
-- {most, deaths alone until set aside, silence in ms after which a worker with an expired lease counts as dead, storm
-- in ms, deaths in all, whether heartbeats count (0|1)}; answers {jobs given back, jobs set aside, when there may be
-- more (0: unknown), events whose planner is dead}.
if repeated then return repeated end
local most, deaths, silence, storm, limit, by_heartbeat = unpack(args)
local given, aside = {}, {}
redis.call('ZREMRANGEBYSCORE', stem .. 'deaths', '-inf', now - storm)

local function give_back(lane, worker, job, dead)
  local heard = redis.call('ZSCORE', stem .. 'workers', worker)
  local record = read(job)
  redis.call('ZREM', stem .. 'leases:' .. lane, job)
  fresh(lane)
  if not record then
    decide('lost', job, 'its record is gone')
    count('lost', 1)
    return
  end
  given[#given + 1] = job
  record.due = now
  if not dead and heard and now - tonumber(heard) < silence then
    -- Its worker is alive and only lost the lease. A suspect job stays one.
    write(job, record)
    if record.alone == 1 then redis.call('ZADD', stem .. 'alone', now, job)
    else enter(job, lane, is_urgent(record), now) end
    return
  end
  local alone = record.alone == 1
  redis.call('ZADD', stem .. 'deaths', now, worker .. ' ' .. (alone and job or ''))
  local silent = dead and SILENCE or silence
  -- Of workers that die together one is noticed first: half of the silence shows that another one is dying, too.
  if not alone and not record.suspect and stormy(job, {[worker] = true}, tonumber(heard), silent / 2, storm) then
    record.suspect = worker
    write(job, record)
    enter(job, lane, is_urgent(record), now)
    return
  end
  if not alone then
    record.alone, record.suspect = 1, worker
    write(job, record)
    redis.call('ZADD', stem .. 'alone', now, job)
    return
  end
  record.fallen = (record.fallen or 0) + 1
  -- Workers that died from this job and the one that held it first do not count.
  local own = {[worker] = true, [record.suspect or ''] = true}
  if not stormy(job, own, tonumber(heard), silent, storm) then
    record.kills = (record.kills or 0) + 1
  end
  if (record.kills or 0) < deaths and record.fallen < limit then
    record.due = now + record.fallen * 1000
    write(job, record)
    redis.call('ZADD', stem .. 'alone', record.due, job)
    return
  end
  record.waiting = nil
  redis.call('ZREM', stem .. 'waiting', 'job:' .. job)
  record.last_error = 'its worker died ' .. record.fallen .. ' times while it was tried alone'
  record.state, record.last_at = is_required(record) and 'aside' or 'dead', now
  write(job, record)
  redis.call('ZADD', stem .. 'dead', now, job)
  decide('set aside', job, record.last_error)
  aside[#aside + 1] = job
  if not is_required(record) then
    local _, _, id = home(job)
    redis.call('ZREM', stem .. 'held', 'job:' .. job)
    redis.call('HINCRBY', deletion_key(id), 'given_up', 1)
    job_ended(id, record.stage)
  end
end

-- A batch is reclaimed as a whole; if its worker is alive, its next renewal reports that.
local function give_back_batches(names, dead)
  for _, name in ipairs(names) do
    if #given >= most then return end
    local fence, lane, worker = unpack(split(name))
    if not dead or dead[worker] then
      local leases = stem .. 'leases:' .. lane
      for _, job in ipairs(redis.call('ZRANGEBYSCORE', leases, fence, fence)) do
        give_back(lane, worker, job, dead and true or false)
      end
      fresh(lane)
      redis.call('ZREM', stem .. 'batches', name)
    end
  end
end

-- Makes the pending entries of dead planners look idle, so that `claim` finds them.
local DAY = 86400000
local function offer_events(dead)
  local number, events = 0, stem .. 'events'
  for worker in pairs(dead) do
    local found, ids = redis.pcall('XPENDING', events, 'planners', '-', '+', 1000, worker), {}
    for _, pending in ipairs(found['err'] and {} or found) do
      if pending[3] < DAY then ids[#ids + 1] = pending[1] end
    end
    number = number + #ids
    if #ids > 0 then
      for _, option in ipairs({'IDLE', DAY, 'JUSTID'}) do ids[#ids + 1] = option end
      redis.call('XCLAIM', events, 'planners', worker, 0, unpack(ids))
    end
  end
  return number
end

local offered = 0
if by_heartbeat == 1 then
  local dead, any = dead_workers()
  if any then
    give_back_batches(redis.call('ZRANGE', stem .. 'batches', 0, -1), dead)
    offered = offer_events(dead)
  end
end
give_back_batches(redis.call('ZRANGEBYSCORE', stem .. 'batches', '-inf', now, 'LIMIT', 0, most))
count('reclaimed', #given)
count('set_aside', #aside)
close_books()
place()
if #given > 0 and redis.call('ZCARD', stem .. 'alone') > 0 then
  redis.call('XADD', stem .. 'wake', 'MAXLEN', '~', 100, '*', 'next', now)
end
local upcoming, death = first_score(stem .. 'batches'), by_heartbeat == 1 and next_death()
if death and (not upcoming or death < upcoming) then upcoming = death end
return answer({given, aside, upcoming or 0, offered})
