-- Scans the open deletions in steps and repairs the effects of crashes, manual changes and lost writes: an event
-- without an entry is added again, a stage that should be open is opened, one whose jobs have all ended is closed, a
-- deletion whose jobs are lost is planned again. args: {cursor, most deletions, grace in ms}; answers {next cursor,
-- events added again, stages reopened}.
if repeated then return repeated end
local grace, added, reopened = args[3], 0, 0
local step = redis.call('ZSCAN', stem .. 'open', args[1], 'COUNT', args[2])
local EVENT = {'v', 'cluster', 'resource', 'uid', 'name', 'source', 'namespace', 'reason', 'round', 'urgent', 'at', 'data'}

-- Whether an entry is undelivered, pending with a planner, or held for an operator or a newer process.
local function under_way(entry)
  local member = 'event:' .. entry
  if redis.call('ZSCORE', stem .. 'newer', member) or redis.call('ZSCORE', stem .. 'held', member) then return true end
  if #redis.call('XRANGE', stem .. 'events', entry, entry) == 0 then return false end
  local pending = redis.pcall('XPENDING', stem .. 'events', 'planners', entry, entry, 1)
  -- Without a group nothing was delivered: a new group begins with the first entry.
  if pending['err'] or #pending > 0 then return true end
  for _, group in ipairs(redis.call('XINFO', 'GROUPS', stem .. 'events')) do
    local named, delivered
    for i = 1, #group, 2 do
      if group[i] == 'name' then named = group[i + 1] end
      if group[i] == 'last-delivered-id' then delivered = group[i + 1] end
    end
    if named == 'planners' then
      local a, b = string.match(entry, '(%d+)-(%d+)')
      local c, d = string.match(delivered, '(%d+)-(%d+)')
      a, b, c, d = tonumber(a), tonumber(b), tonumber(c), tonumber(d)
      return a > c or (a == c and b > d)
    end
  end
  return true
end

local function publish_again(id, key, entry, why)
  local text = redis.call('HGET', key, 'event')
  local values, fields = text and cjson.decode(text) or redis.call('HMGET', key, unpack(EVENT)), {}
  for i, name in ipairs(EVENT) do
    local value = text and values[name] or values[i]
    if value and value ~= '' then
      fields[#fields + 1] = name
      fields[#fields + 1] = value
    end
  end
  if entry then
    redis.call('XACK', stem .. 'events', 'planners', entry)
    redis.call('XDEL', stem .. 'events', entry)
  end
  add_again(key, fields)
  decide('published again', id, why or 'its entry was gone')
  added = added + 1
end

-- Opens every stage that should be open, and closes those whose jobs have all ended.
local function look_after(id, key, record)
  local finale, previous = string.match(record['last'] or '', '^%S+ %S+ %S+ (%d+)$'), {}
  for field, shape in pairs(record) do
    local stage = string.match(field, '^stage%.(%d+)$')
    local following = stage and split(shape)[4]
    if following then previous[following] = stage end
  end
  for field, shape in pairs(record) do
    local stage = string.match(field, '^stage%.(%d+)$')
    if stage and not record['closed.' .. stage] and not redis.call('ZSCORE', stem .. 'opening', id .. '|' .. stage) then
      if record['opened.' .. stage] then
        if record['cursor.' .. stage] then
          open_stage(id, stage)
          reopened = reopened + 1
        elseif tonumber(record['left.' .. stage] or 0) <= 0 then
          stage_ended(id, tonumber(stage))
          reopened = reopened + 1
        end
      else
        local turn
        if stage == record['release'] then
          turn = tonumber(record['chains_left']) == 0
        elseif stage == finale then
          turn = tonumber(record['chains_left']) == 1
        else
          turn = not previous[stage] or record['closed.' .. previous[stage]] ~= nil
        end
        if turn then
          open_stage(id, stage)
          reopened = reopened + 1
        end
      end
    end
  end
end

-- Leased jobs by deletion, read at most once per call.
local hands
local function in_hand()
  if hands then return hands end
  local known = {}
  hands = {}
  for _, name in ipairs(redis.call('ZRANGE', stem .. 'batches', 0, -1)) do
    local lane = split(name)[2]
    if not known[lane] then
      known[lane] = true
      for _, job in ipairs(redis.call('ZRANGE', stem .. 'leases:' .. lane, 0, -1)) do
        local _, _, id = home(job)
        hands[id] = hands[id] or {}
        table.insert(hands[id], {lane, job})
      end
    end
  end
  return hands
end

-- Breaks the leases of a deletion's jobs: they belong to an obsolete plan, so that settling them must change nothing.
local function break_leases(id)
  for _, lease in ipairs(in_hand()[id] or {}) do
    redis.call('ZREM', stem .. 'leases:' .. lease[1], lease[2])
    fresh(lease[1])
  end
end

-- Removes the rest of a plan as a whole: a job of it that still ran would be counted in the next plan. Its jobs are
-- removed from their sets as far as one call allows; `take` finds the others without a record.
local cleared = 0
local function take_apart(plan)
  local left = redis.call('HSCAN', stem .. 'job:' .. plan, '0', 'COUNT', 2 * SPREAD)[2]
  for i = 1, #left, 2 do
    local job, record = plan .. '.' .. left[i], decoded(left[i + 1])
    if record then
      redis.call('ZREM', lane_key(record.lane, true), job)
      redis.call('ZREM', lane_key(record.lane, false), job)
      fresh(record.lane)
    end
    redis.call('ZREM', stem .. 'alone', job)
    redis.call('ZREM', stem .. 'dead', job)
    redis.call('ZREM', stem .. 'newer', 'job:' .. job)
    unshow('job:' .. job)
  end
  redis.call('UNLINK', stem .. 'job:' .. plan, index_of(plan))
  cleared = cleared + #left / 2
end

-- The number of a job whose record has been missing for a while, and whose stage waits for it.
local function torn(id, key, record)
  local number, seen = string.match(record['torn'] or '', '^(%d+) (%d+)$')
  if not number then return nil end
  local there = redis.call('HGET', stem .. 'job:' .. id .. '#' .. record['plan'], number)
  local stage = stage_with(record, tonumber(number))
  if there or (stage and record['closed.' .. stage]) then
    redis.call('HDEL', key, 'torn')
    return nil
  end
  return now - tonumber(seen) > grace and cleared < SPREAD and number or nil
end

-- Jobs of removed plans may still be queued in lanes, so that the first plan of a deletion must not reuse a plan
-- number.
local function retire()
  local highest = tonumber(redis.call('HGET', stem .. 'meta', 'highest_plan') or 1)
  redis.call('HSET', stem .. 'meta', 'retired_plan', string.format('%.0f', highest))
  return highest
end

-- One or all of its jobs are lost, without which its stage would never end: plans it again, from the event in its
-- record. Resources that are gone already are found gone.
local function plan_anew(id, key, record, why)
  break_leases(id)
  retire()
  take_apart(id .. '#' .. record['plan'])
  local stale = {'plan', 'planned_at', 'release', 'chains_left', 'walked', 'given_up', 'withdrawn', 'withdrawing', 'torn',
                 'late', 'late_stages', 'appending', 'indexed', 'indexing'}
  for field in pairs(record) do
    local stage = string.match(field, '^%a+%.(%d+)$')
    if stage then
      stale[#stale + 1] = field
      redis.call('ZREM', stem .. 'opening', id .. '|' .. stage)
    end
  end
  spread('HDEL', key, stale)
  redis.call('HSET', key, 'state', 'published', 'abandoned', redis.call('HLEN', stem .. 'abandoned:' .. id))
  decide('planned anew', id, why)
  count('lost', 1)
  publish_again(id, key, nil)
end

-- Removes what an unfinished append wrote, if its job does not have the lease any more.
local function tidy_append(id, key, record)
  local plan, append = id .. '#' .. record['plan'], cjson.decode(record['appending'])
  if cleared >= SPREAD or is_under_way(plan, append) then return end
  cleared = cleared + remove_unfinished(key, plan, append, job_count(record['last'], record['late']), SPREAD)
end

local function tend(id, key, record)
  if redis.call('EXISTS', stem .. 'job:' .. id .. '#' .. record['plan']) == 0 then
    plan_anew(id, key, record, 'the records of its jobs are gone')
    return
  end
  local number = torn(id, key, record)
  if number then plan_anew(id, key, record, 'the record of its job ' .. number .. ' is gone')
  else
    if record['appending'] then tidy_append(id, key, record) end
    look_after(id, key, record)
  end
end

for i = 1, #step[2], 2 do
  local id, since = step[2][i], tonumber(step[2][i + 1])
  local key, record = deletion_key(id), {}
  local flat = redis.call('HGETALL', key)
  for j = 1, #flat, 2 do record[flat[j]] = flat[j + 1] end
  local state = record['state']
  if not state then
    redis.call('ZREM', stem .. 'open', id)
    -- Its jobs would be counted in the next plan, if there is one.
    break_leases(id)
    for number = 1, math.min(retire(), 100) do take_apart(id .. '#' .. number) end
    decide('lost', id, 'its record is gone')
    count('lost', 1)
  elseif state == 'done' or state == 'dropped' then
    finished[#finished + 1] = id
  elseif state == 'published' and now - since > grace then
    if not (record['entry'] and under_way(record['entry'])) then publish_again(id, key, record['entry']) end
  elseif is_held(state) and record['again_at'] and now >= tonumber(record['again_at']) then
    redis.call('HSET', key, 'state', 'published')
    redis.call('HDEL', key, 'held', 'again_at')
    unshow('deletion:' .. id)
    publish_again(id, key, nil, 'it was held for a reason that may have passed')
  elseif (state == 'running' or state == 'releasing') and now - tonumber(record['planned_at'] or 0) > grace then
    tend(id, key, record)
  end
end
close_books()
place()
return answer({step[1], added, reopened})
