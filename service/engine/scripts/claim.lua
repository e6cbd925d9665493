-- Claims the first entry whose planner is silent, for an idle planner: it is planned alone. That is recorded before
-- planning begins, so that only a death while planning it alone counts. After such a death the entry waits: a minute,
-- doubled each time up to the length of a crash loop; from the third counted death on, or the tenth in all, an hour,
-- doubled each time up to a day.
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

-- The record of a suspect entry is "DEATHS COUNTED STORM NAME...": the beginning of its last storm, and the names of
-- its planners, of which the last one planned it alone. Returns these, and how long it must wait.
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
  -- The deaths of one crash loop count once.
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
    -- Deleted by an operator; `repair` takes care of its deletion.
    redis.call('XACK', events, 'planners', entry)
  else
    local fallen, counted, began, names, wait = judge(entry, holder)
    redis.call('XCLAIM', events, 'planners', worker, 0, entry)
    -- A planner that only holds the entry is not recorded.
    local known = string.format('%d %d %.0f %s %s', fallen, counted, began, names, wait > 0 and '-' or worker)
    redis.call('HSET', suspects, entry, known)
    return answer({entry, wait, fallen})
  end
end
return answer({'', 0, 0})
