-- Offers the lanes that may be served now, with their numbers of due jobs. They are reserved for a moment, so that
-- other workers get other lanes. args: {most lanes, moment in ms, alone (0|1): reserve the job to be tried alone, too};
-- answers {now, next time anything may be due (0: unknown), paused (0|1), lanes {name, urgent, background, leased},
-- alone}.
if repeated then return repeated end
local most, moment = args[1], args[2]
local paused = redis.call('HGETALL', stem .. 'paused')
local stopped = {}
for i = 1, #paused, 2 do stopped[paused[i]] = true end
if stopped['*'] then return answer({now, 0, 1, {}, {}}) end

local due, claimed = {}, {}
for _, lane in ipairs(redis.call('ZRANGEBYSCORE', lanes, '-inf', now, 'LIMIT', 0, most)) do
  if stopped[lane] then
    -- Not offered until `pause` rescores it.
    redis.call('ZADD', lanes, '+inf', lane)
  else
    local urgent = redis.call('ZCOUNT', lane_key(lane, true), '-inf', now)
    local background = redis.call('ZCOUNT', lane_key(lane, false), '-inf', now)
    if urgent + background == 0 then
      rescore(lane)
    else
      due[#due + 1] = {lane, urgent, background, redis.call('ZCARD', stem .. 'leases:' .. lane)}
      claimed[#claimed + 1] = now + moment
      claimed[#claimed + 1] = lane
    end
  end
end
if #claimed > 0 then spread('ZADD', lanes, claimed) end

-- A job whose worker died is tried alone.
local alone, soonest = {}, first_score(stem .. 'alone')
if soonest and soonest <= now then
  for _, job in ipairs(redis.call('ZRANGEBYSCORE', stem .. 'alone', '-inf', now, 'LIMIT', 0, 10)) do
    local record = read(job)
    if not record then
      redis.call('ZREM', stem .. 'alone', job)
      decide('lost', job, 'its record is gone')
      count('lost', 1)
    elseif stopped[record.lane] then
      -- Moved behind the others for a moment, so that it blocks none of them.
      redis.call('ZADD', stem .. 'alone', now + moment, job)
    else
      alone = {job, record.lane}
      if args[3] == 1 then redis.call('ZADD', stem .. 'alone', now + moment, job) end
      break
    end
  end
end
local upcoming = first_score(lanes)
if upcoming == math.huge then upcoming = nil end
if soonest and (#alone == 0 and soonest > now) and (not upcoming or soonest < upcoming) then upcoming = soonest end
return answer({now, upcoming or 0, 0, due, alone})
