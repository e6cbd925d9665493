-- Takes over the first entry whose planner has gone silent, for a planner that has nothing else in hand: it is planned
-- alone. That is written down before it begins, so that only a death alone with it counts, and none in a storm, unless
-- it goes on and on. args: {worker, silence of an entry in ms, deaths alone until set aside, silence in ms after which a
-- worker counts as dead, storm in ms, deaths in all}; answers {entry ('': none), hold (0|1), deaths alone so far}.
if repeated then return repeated end
local worker, idle, deaths, silence, storm, limit = unpack(args)
local events, suspects = stem .. 'events', stem .. 'suspects'
redis.call('ZREMRANGEBYSCORE', stem .. 'deaths', '-inf', now - storm)

-- What is known of a suspect: "DEATHS COUNTED NAME...", the names of all who had it, the last one alone.
local function judge(entry, holder)
  local text = redis.call('HGET', suspects, entry)
  if not text then return 0, 0, holder end
  local fallen, kills, names = string.match(text, '^(%d+) (%d+) (.*)$')
  fallen, kills = tonumber(fallen), tonumber(kills)
  if string.match(names, '(%S+)$') ~= holder then return fallen, kills, names .. ' ' .. holder end
  local own = {}
  for _, name in ipairs(split(names)) do own[name] = true end
  local heard = redis.call('ZSCORE', stem .. 'workers', holder)
  if not stormy('event:' .. entry, own, heard and tonumber(heard), silence, storm) then kills = kills + 1 end
  return fallen + 1, kills, names
end

local found = redis.pcall('XPENDING', events, 'planners', 'IDLE', idle, '-', '+', 100)
if found['err'] then return answer({'', 0, 0}) end
for _, pending in ipairs(found) do
  local entry, holder = pending[1], pending[2]
  if #redis.call('XRANGE', events, entry, entry) == 0 then
    -- Deleted by hand: what it was about is seen to by `mend`.
    redis.call('XACK', events, 'planners', entry)
  else
    local fallen, kills, names = judge(entry, holder)
    redis.call('XCLAIM', events, 'planners', worker, 0, entry)
    redis.call('HSET', suspects, entry, fallen .. ' ' .. kills .. ' ' .. names .. ' ' .. worker)
    return answer({entry, (kills >= deaths or fallen >= limit) and 1 or 0, fallen})
  end
end
return answer({'', 0, 0})
