-- Whether a worker's death says anything about what it had in hand: not if others died at about the same time.

-- Their leases ran out lately, or they have fallen silent and will run out. Whom the same cause killed, and those in
-- `own` (name -> true: who had it in hand before), do not count. `heard` is when the dead one last showed itself.
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
