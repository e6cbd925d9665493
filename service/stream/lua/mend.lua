-- Walks the open deletions in steps and puts right what a crash, a hand or a lost write left behind: an event whose
-- entry is gone is added again, a stage whose turn has come is opened, its unfinished jobs are in the index.
-- args: {cursor, most deletions, most jobs, grace in ms}; answers {next cursor, events added again, stages reopened, jobs found}.
if repeated then return repeated end
local grace, added, reopened, found, budget = args[4], 0, 0, 0, args[3]
local step = redis.call('ZSCAN', stem .. 'open', args[1], 'COUNT', args[2])
local EVENT = {'v', 'cluster', 'resource', 'uid', 'name', 'source', 'namespace', 'reason', 'round', 'urgent', 'at', 'data'}

-- An entry is under way when it is not yet delivered, or pending with a planner.
local function under_way(entry)
  if #redis.call('XRANGE', stem .. 'events', entry, entry) == 0 then return false end
  if #redis.call('XPENDING', stem .. 'events', 'planners', entry, entry, 1) > 0 then return true end
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

local function publish_again(id, key, entry)
  local values, fields = redis.call('HMGET', key, unpack(EVENT)), {}
  for i, name in ipairs(EVENT) do
    if values[i] then
      fields[#fields + 1] = name
      fields[#fields + 1] = values[i]
    end
  end
  if entry then
    redis.call('XACK', stem .. 'events', 'planners', entry)
    redis.call('XDEL', stem .. 'events', entry)
  end
  redis.call('HSET', key, 'entry', redis.call('XADD', stem .. 'events', '*', unpack(fields)))
  decide('published again', id, 'its entry was gone')
  added = added + 1
end

local function look_after(id, key, record)
  local jobs = {}
  for field, shape in pairs(record) do
    local stage = string.match(field, '^stage%.(%d+)$')
    if stage and record['opened.' .. stage] and not record['closed.' .. stage] then
      local parts = split(shape)
      local opening_now = redis.call('ZSCORE', stem .. 'opening', id .. '|' .. stage)
      if record['cursor.' .. stage] and not opening_now then
        open_stage(id, stage)
        reopened = reopened + 1
      elseif not opening_now then
        local ended = 0
        for n = tonumber(parts[2]), tonumber(parts[2]) + tonumber(parts[3]) - 1 do
          if budget <= 0 then return end
          budget = budget - 1
          local job = id .. '#' .. record['plan'] .. '.' .. n
          local state = redis.call('HMGET', job_key(job), 'lane', 'state')
          if not state[1] or (state[2] and state[2] ~= 'aside') then
            ended = ended + 1
          elseif not redis.call('ZSCORE', stem .. 'jobs', job) then
            jobs[#jobs + 1] = now
            jobs[#jobs + 1] = job
          end
        end
        if ended == tonumber(parts[3]) then
          redis.call('HSET', key, 'left.' .. stage, 0)
          stage_ended(id, tonumber(stage))
          reopened = reopened + 1
        end
      end
    elseif stage and not record['opened.' .. stage] and not redis.call('ZSCORE', stem .. 'opening', id .. '|' .. stage) then
      local parts, turn = split(shape), false
      if stage == record['release'] then
        turn = tonumber(record['chains_left']) == 0
      else
        local before_it = tonumber(stage) - 1
        local previous = record['stage.' .. before_it]
        local chained = previous and split(previous)[4] == stage
        turn = (not chained) or record['closed.' .. before_it] ~= nil
      end
      if turn and #parts > 0 then
        open_stage(id, stage)
        reopened = reopened + 1
      end
    end
  end
  if #jobs > 0 then
    spread('ZADD', stem .. 'jobs', jobs)
    found = found + #jobs / 2
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
    decide('lost', id, 'its record is gone')
    count('lost', 1)
  elseif state == 'done' or state == 'dropped' then
    finished[#finished + 1] = id
  elseif state == 'published' and now - since > grace then
    if not (record['entry'] and under_way(record['entry'])) then publish_again(id, key, record['entry']) end
  elseif (state == 'running' or state == 'releasing') and now - tonumber(record['planned_at'] or 0) > grace then
    look_after(id, key, record)
  end
end
close_books()
announce()
return answer({step[1], added, reopened, found})
