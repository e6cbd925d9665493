-- Shared by the scripts of a shard: lanes and their scores, enqueuing of jobs, ends of stages.
local lanes, touched, earliest = stem .. 'lanes', {}, nil
local function lane_key(lane, urgent)
  return stem .. 'lane:' .. lane .. (urgent and ':urgent' or '')
end
local function deletion_key(id) return stem .. 'deletion:' .. id end

-- A job's id is DELETION#PLAN.NUMBER; its record is a field of the plan's hash, so that one command reads many.
local function home(job)
  local sharp = string.find(job, '#', 1, true)
  local dot = string.find(job, '.', sharp, true)
  return stem .. 'job:' .. string.sub(job, 1, dot - 1), string.sub(job, dot + 1), string.sub(job, 1, sharp - 1)
end

local function decoded(text)
  local fine, record = pcall(cjson.decode, text)
  if fine and type(record) == 'table' and record.lane and record.stage then return record end
end

-- A record is flat JSON without default values: most jobs are urgent, required and due at once.
local function read(job)
  local key, field = home(job)
  local text = redis.call('HGET', key, field)
  if not text then return nil end
  local record = decoded(text)
  if not record then return nil, text end
  return record
end
local function write(job, record)
  local key, field = home(job)
  redis.call('HSET', key, field, cjson.encode(record))
end
local function is_urgent(record) return record.urgent ~= 0 end
local function is_required(record) return record.strategy ~= 'best-effort' end

-- The version is the first field of every record that Knell writes.
local function version_of(text)
  return tonumber(string.match(text, '^{"v":(%d+)') or string.match(text, '"v":(%d+)'))
end

local function first_score(key)
  local first = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]
  return first and tonumber(first)
end

local before = first_score(lanes)

-- The time as text: a number would be formatted for every command again.
local written
local function moment()
  written = written or string.format('%.0f', now)
  return written
end

-- The score of a lane is when it may be served next: when its first job is due, but not before its budget has tokens. A
-- lane that was served comes after those that have waited since, so that a full lane never starves another one.
local function rescore(lane)
  local score = first_score(lane_key(lane, false))
  local urgent = first_score(lane_key(lane, true))
  if urgent and (not score or urgent < score) then score = urgent end
  if not score then
    redis.call('ZREM', lanes, lane)
    redis.call('HDEL', stem .. 'dry', lane)
    return
  end
  local dry = redis.call('HGET', stem .. 'dry', lane)
  if dry then score = math.max(score, tonumber(dry)) end
  redis.call('ZADD', lanes, score, lane)
  if not earliest or score < earliest then earliest = score end
end

local function fresh(lane)
  if not touched[lane] then
    touched[lane] = {queue = {}, urgent = {}}
    touched[#touched + 1] = lane
  end
  return touched[lane]
end

-- Enqueues a job in a lane; `place` writes it with one ZADD for each queue.
local function enter(job, lane, urgent, due)
  local list = urgent and fresh(lane).urgent or fresh(lane).queue
  list[#list + 1] = due
  list[#list + 1] = job
end

local function gauge(lane)
  local queued = redis.call('ZCARD', lane_key(lane, false)) + redis.call('ZCARD', lane_key(lane, true))
  local leased = redis.call('ZCARD', stem .. 'leases:' .. lane)
  redis.call('HSET', stem .. 'stats', 'lane/' .. lane .. '/queued', queued, 'lane/' .. lane .. '/leased', leased)
end

-- Jobs taken together share a fencing token and one lease; its end is in `batches`.
local function batch_name(fence, lane, worker) return string.format('%.0f', fence) .. ' ' .. lane .. ' ' .. worker end

-- Whether this worker holds a batch under that token. Every script that gets a token checks this first: the token alone
-- proves nothing, because a server that was restored may have assigned it again, to another worker.
local function holds(worker, fence, lane)
  return redis.call('ZSCORE', stem .. 'batches', batch_name(fence, lane, worker)) and true or false
end

-- Wakes waiting workers when something is due now, or earlier than anything known before.
local function announce()
  if earliest and (earliest <= now or not before or earliest < before) then
    redis.call('XADD', stem .. 'wake', 'MAXLEN', '~', 100, '*', 'next', earliest)
  end
end

local function place()
  for _, lane in ipairs(touched) do
    local sides = touched[lane]
    if #sides.queue > 0 then spread('ZADD', lane_key(lane, false), sides.queue) end
    if #sides.urgent > 0 then spread('ZADD', lane_key(lane, true), sides.urgent) end
    rescore(lane)
    gauge(lane)
  end
  announce()
end

local function count(field, by)
  if by ~= 0 then redis.call('HINCRBY', stem .. 'stats', field, by) end
end

local function decide(what, id, why)
  redis.call('XADD', stem .. 'audit', '*', 'entry', 'decision', 'what', what, 'id', id, 'why', why)
end

local function split(text)
  local parts = {}
  for part in string.gmatch(text, '%S+') do parts[#parts + 1] = part end
  return parts
end

-- Jobs of a plan are numbered in order: those of the plan, of which the release is the last, then those found late.
-- Records beyond that number belong to an unfinished append.
local function job_count(last, late)
  return tonumber(string.match(last or '0', '^%d+')) + 1 + tonumber(late or 0)
end

-- The stage of a job, from its deletion's record: the last one whose range has it, because a job that found late targets
-- is moved to a stage after them, and its number stays in the range of the former one.
local function stage_with(record, number)
  local found
  for field, shape in pairs(record) do
    local stage = tonumber(string.match(field, '^stage%.(%d+)$'))
    if stage and (not found or stage > found) then
      local parts = split(shape)
      local from = tonumber(parts[2])
      if number >= from and number < from + tonumber(parts[3]) then found = stage end
    end
  end
  return found
end

-- The record of a new job with its times, as text. In a stage that is not open yet, a delay begins when it opens.
local function with_times(text, delay, opens, expires)
  if delay > 0 then
    local field, value = '"after":', delay
    if opens == 1 then field, value = '"due":', now + delay end
    text = string.sub(text, 1, -2) .. ',' .. field .. string.format('%.0f', value) .. '}'
  end
  if expires > 0 then text = string.sub(text, 1, -2) .. ',"deadline":' .. string.format('%.0f', now + expires) .. '}' end
  return text
end

-- The deletion whose event is stored under that entry, if it was published by `publish`.
local function deletion_of_kept(entry)
  local parts = redis.call('HMGET', stem .. 'kept:' .. entry, 'cluster', 'resource', 'uid', 'round')
  if not (parts[1] and parts[2] and parts[3]) then return nil end
  local id = parts[1] .. '/' .. parts[2] .. '/' .. parts[3] .. '/' .. (parts[4] or '1')
  return redis.call('HGET', deletion_key(id), 'entry') == entry and id or nil
end

-- Puts a stored event back on the stream and updates the entry in its deletion's record.
local function add_kept(entry)
  local kept, id = stem .. 'kept:' .. entry, deletion_of_kept(entry)
  -- No valid event has so many fields, and a longer list does not fit into one command.
  if redis.call('HLEN', kept) * 2 > SPREAD then return false end
  local added = redis.call('XADD', stem .. 'events', '*', unpack(redis.call('HGETALL', kept)))
  if id then redis.call('HSET', deletion_key(id), 'entry', added) end
  redis.call('DEL', kept, stem .. 'why:' .. entry)
  return true
end

-- Puts the event of a held deletion back on the stream. If its planners died, it is marked to be planned alone, and its
-- death counts continue.
local function add_again(key, fields)
  local known = redis.call('HGET', key, 'suspect')
  if known then
    fields[#fields + 1] = 'alone'
    fields[#fields + 1] = 1
  end
  local entry = redis.call('XADD', stem .. 'events', '*', unpack(fields))
  redis.call('HSET', key, 'entry', entry)
  if known then
    redis.call('HSET', stem .. 'suspects', entry, known .. ' -')
    redis.call('HDEL', key, 'suspect')
  end
end

-- A deletion that is not planned yet is `held` for an operator or `waiting`; the index of that name lists it.
local function is_held(state) return state == 'held' or state == 'waiting' end
local function unshow(member)
  redis.call('ZREM', stem .. 'held', member)
  redis.call('ZREM', stem .. 'waiting', member)
end

local opening, finished = {}, {}
local function open_stage(id, stage)
  opening[#opening + 1] = now
  opening[#opening + 1] = id .. '|' .. stage
end

-- Field names of a stage in a deletion's record, built once for each number.
local fields_of = {}
local function stage_fields(stage)
  local fields = fields_of[stage]
  if not fields then
    fields = {'stage.' .. stage, 'opened.' .. stage, 'closed.' .. stage, 'left.' .. stage}
    fields_of[stage] = fields
  end
  return fields
end

-- A stage ended: opens its successor, or the chain `finally`, or the release once every chain has ended, or finishes
-- the deletion. A stage whose jobs were all abandoned before it opened ends when it would open, and no stage ends
-- twice.
local function stage_ended(id, stage)
  local fields = stage_fields(stage)
  local key, closed, at = deletion_key(id), fields[3], moment()
  local known = redis.call('HMGET', key, fields[1], fields[2], closed, 'release', 'chains_left', 'plan', 'last')
  if not known[1] or not known[2] or known[3] then return end
  if stage == tonumber(known[4]) then
    redis.call('HSET', key, closed, at, 'state', 'done', 'done_at', at)
    finished[#finished + 1] = id
    return
  end
  local successor = string.match(known[1], '%S+$')
  if successor ~= '-' then
    redis.call('HSET', key, closed, at, 'last_end', at)
    open_stage(id, successor)
    return
  end
  local chains = tonumber(known[5] or 0) - 1
  -- The first stage of the chain `finally` follows the release in `last`, until it is the only chain left.
  local last, finale
  if chains == 1 then last, finale = string.match(known[7], '^(%S+ %S+ %S+) (%d+)$') end
  if finale then
    redis.call('HSET', key, closed, at, 'last_end', at, 'chains_left', 1, 'last', last)
    open_stage(id, finale)
    return
  end
  if chains ~= 0 then
    redis.call('HSET', key, closed, at, 'last_end', at, 'chains_left', chains)
    return
  end
  -- The release is a single job whose lane is known here, so that it is enqueued directly.
  local number, lane, urgent = string.match(known[7], '^(%S+) (%S+) (%S+)')
  redis.call('HSET', key, closed, at, 'chains_left', 0, 'state', 'releasing', 'opened.' .. known[4], at)
  enter(id .. '#' .. known[6] .. '.' .. number, lane, urgent == '1', at)
end

-- Counts an ended job of a stage; `close_books` writes the counts, once for all jobs of a stage in one call.
local ended = {}
local function job_ended(id, stage, number)
  local stages = ended[id]
  if not stages then
    stages = {}
    ended[id] = stages
  end
  local entry = stages[stage]
  if entry then
    entry[3] = entry[3] + (number or 1)
  else
    entry = {id, stage, number or 1}
    stages[stage] = entry
    ended[#ended + 1] = entry
  end
end

-- A lost record must not be recreated with a counter only.
local function count_down()
  for _, entry in ipairs(ended) do
    local key, field = deletion_key(entry[1]), stage_fields(entry[2])[4]
    local left = redis.call('HINCRBY', key, field, -entry[3])
    if left == 0 then
      stage_ended(entry[1], entry[2])
    elseif left > 0 then
      redis.call('HSET', key, 'last_end', moment())
    else
      redis.call('HDEL', key, field)
      count('lost', 1)
    end
  end
end

local function close_books()
  count_down()
  if #opening > 0 then spread('ZADD', stem .. 'opening', opening) end
  if #finished > 0 then
    spread('ZREM', stem .. 'open', finished)
    local scored = {}
    for _, id in ipairs(finished) do
      scored[#scored + 1] = now
      scored[#scored + 1] = id
    end
    spread('ZADD', stem .. 'finished', scored)
    count('done', #finished)
  end
end
