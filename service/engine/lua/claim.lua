-- Takes over the first entry whose planner has gone silent, for a planner that has nothing else in hand: it is planned
-- alone. That is written down before it begins, so that only a death alone with it counts. After such a death it is not
-- planned at once but waits: a minute, doubled each time up to the length of a crash loop; from the third counted death
-- on, or the tenth in all, an hour, doubled each time up to a day.
-- args: {worker, silence of an entry in ms, deaths that count, silence in ms after which a worker counts as dead, storm
-- in ms, deaths in all, crash loop in ms, first short wait, first long wait, longest wait in ms}; answers {entry ('':
-- none), ms that it has to wait (0: it is planned now), deaths alone so far}.
if repeated then return repeated end
local worker, idle, deaths, silence, storm, limit, loop, short, long, longest = unpack(args)
local events, suspects = stem .. 'events', stem .. 'suspects'
redis.call('ZREMRANGEBYSCORE', stem .. 'deaths', '-inf', now - storm)

local function wait_after(fallen, counted)
  local beyond = math.max(counted - deaths, fallen - limit)
  if beyond >= 0 then return math.min(longest, long * 2 ^ math.min(beyond, 20)) end
  return math.min(loop, short * 2 ^ math.min(fallen - 1, 20))
end

-- What is known of a suspect: "DEATHS COUNTED STORM NAME...": when its last storm began, and the names of all who had
-- it, the last one alone. Answers these, and how long it has to wait.
local function judge(entry, holder)
  local text = redis.call('HGET', suspects, entry)
  if not text then return 0, 0, 0, holder, 0 end
  local fallen, counted, began, names = string.match(text, '^(%d+) (%d+) (%d+) (.*)$')
  fallen, counted, began = tonumber(fallen), tonumber(counted), tonumber(began)
  if string.match(names, '(%S+)$') ~= holder then return fallen, counted, began, names .. ' ' .. holder, 0 end
  local own = {}
  for _, name in ipairs(split(names)) do own[name] = true end
  local heard = tonumber(redis.call('ZSCORE', stem .. 'workers', holder))
  fallen = fallen + 1
  -- Deaths of one crash loop are one storm, which its first death stands for.
  local died = heard or now
  if died - began >= loop then
    began = died
    if not stormy('event:' .. entry, own, heard, silence, storm) then counted = counted + 1 end
  end
  count('planner_deaths', 1)
  return fallen, counted, began, names, wait_after(fallen, counted)
end

local found = redis.pcall('XPENDING', events, 'planners', 'IDLE', idle, '-', '+', 100)
if found['err'] then return answer({'', 0, 0}) end
for _, pending in ipairs(found) do
  local entry, holder = pending[1], pending[2]
  if #redis.call('XRANGE', events, entry, entry) == 0 then
    -- Deleted by hand: what it was about is seen to by `mend`.
    redis.call('XACK', events, 'planners', entry)
  else
    local fallen, counted, began, names, wait = judge(entry, holder)
    redis.call('XCLAIM', events, 'planners', worker, 0, entry)
    -- Whoever only has to hold it is not charged with it.
    local known = string.format('%d %d %.0f %s %s', fallen, counted, began, names, wait > 0 and '-' or worker)
    redis.call('HSET', suspects, entry, known)
    return answer({entry, wait, fallen})
  end
end
return answer({'', 0, 0})
