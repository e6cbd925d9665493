-- Whether a worker died in a storm, that is together with others: then its death says nothing about its job.

-- Others count as dying if their leases expired recently, or if they are silent. Workers that died from the same cause
-- and those in `own` (name -> true: former holders) do not count. `heard` is the last sign of life of the dead worker.
local function stormy(cause, own, heard, silence, storm)
  for _, death in ipairs(redis.call('ZRANGE', stem .. 'deaths', 0, 99)) do
    local who, of = string.match(death, '^(%S+) ?(.*)$')
    if of == cause then own[who] = true
    elseif not own[who] then return true end
  end
  local from = (heard or now - silence) - storm
  for _, who in ipairs(redis.call('ZRANGEBYSCORE', stem .. 'workers', from, now - silence, 'LIMIT', 0, 100)) do
    if not own[who] then return true end
  end
  return false
end
