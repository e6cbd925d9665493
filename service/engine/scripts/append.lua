-- Appends targets that a job of the chain `finally` found late, as jobs and stages of the same plan between its own stage
-- and the next one, and moves that job into a stage after them. If another job found some of them before, and they have
-- not ended, all of that comes after their stages: the job would wait for them in vain if they came after it. It is made in chunks: what they write is part of no
-- stage until the last one, and the first one removes what an unfinished append wrote. Targets that the deletion has
-- already, ended or not, or that were abandoned in an earlier plan, are not added.
-- args: {worker, lane, fence, job, offset (rows sent before), rows, final (0|1), the job's next record without its closing
-- brace, note, most jobs in one call, most late targets and most late stages of a deletion}; a row is {record, lane,
-- urgent, delay, 0, ms to its deadline (0: none)}, its stage counted from 0. Answers {state, targets added so far, late
-- targets and late stages of the deletion, stages opening}; states are `preparing` (send the same again), `writing`,
-- `added`, `known` (nothing is left to add), `bounds`, `busy` (another job appends), `stale` (begin anew), `withdrawn`,
-- `misplaced` (not in the chain `finally`), and `lost` (the lease is over). With `added` the job is settled; with all
-- other states it stays leased, and the deletion's jobs and stages are as before.
if repeated then return repeated end
local worker, lane, fence, job, offset, rows, final, next_record, note, most, most_targets, most_stages = unpack(args)
local token, jobs, number, id = string.format('%.0f', fence), home(job)
local plan, key = string.sub(job, 1, -#number - 2), deletion_key(id)
local index, leases, room = index_of(plan), stem .. 'leases:' .. lane, most
local known = redis.call('HMGET', key, 'state', 'plan', 'last', 'late', 'late_stages', 'release', 'withdrawn',
                         'appending', 'indexed', 'indexing')
local late, late_stages = tonumber(known[4] or 0), tonumber(known[5] or 0)

local function reply(state, added)
  return answer({state, added or 0, late, late_stages, #opening / 2})
end

local mine = holds(worker, fence, lane) and redis.call('ZSCORE', leases, job) == token
local finder = mine and read(job)
if not finder or known[1] ~= 'running' or plan ~= id .. '#' .. (known[2] or '') then return reply('lost') end
if known[7] then return reply('withdrawn') end
local shape = split(redis.call('HGET', key, 'stage.' .. finder.stage) or '')
if shape[1] ~= 'finally' or redis.call('HGET', key, 'closed.' .. finder.stage) then return reply('misplaced') end

local first = job_count(known[3], late)
local append = known[8] and cjson.decode(known[8])

-- Adds a page of records to the index. If one does not say what its target is, any resource may be its target.
local function index_records(texts, values)
  local fields = {}
  for i, text in ipairs(texts) do
    local record = text and decoded(text)
    local name = record and identity(record)
    if text then
      fields[#fields + 1] = name or '?'
      fields[#fields + 1] = values[i] or 'abandoned'
    end
  end
  spread('HSET', index, fields)
end

-- Continues with the index, within the bound of a call; returns whether it is complete. Its size is recorded with every
-- change, so that a lost one is noticed and built anew.
local function build_index()
  local size = redis.call('HLEN', index)
  if known[9] and tonumber(known[9]) == size then return true end
  local phase, at, before_ = string.match(known[10] or '', '^(%a+) (%d+) (%d+)$')
  if known[9] or not phase or tonumber(before_) ~= size then
    redis.call('UNLINK', index)
    phase, at = 'jobs', '0'
  end
  if phase == 'jobs' then
    local from, numbers = tonumber(at), {}
    for i = 1, math.min(first - from, room) do numbers[i] = from + i - 1 end
    if #numbers > 0 then index_records(redis.call('HMGET', jobs, unpack(numbers)), numbers) end
    room = room - #numbers
    at = string.format('%.0f', from + #numbers)
    if from + #numbers == first then phase, at = 'abandoned', '0' end
  end
  local complete = false
  if phase == 'abandoned' and room > 0 then
    local page, texts = redis.call('HSCAN', stem .. 'abandoned:' .. id, at, 'COUNT', room), {}
    for i = 2, #page[2], 2 do texts[#texts + 1] = page[2][i] end
    index_records(texts, {})
    room, at, complete = room - #texts, page[1], page[1] == '0'
  end
  size = redis.call('HLEN', index)
  if complete then
    redis.call('HDEL', key, 'indexing')
    redis.call('HSET', key, 'indexed', size)
  else
    redis.call('HDEL', key, 'indexed')
    redis.call('HSET', key, 'indexing', phase .. ' ' .. at .. ' ' .. size)
  end
  return complete
end

if offset > 0 then
  local same = append and append.job == number and append.fence == token and append.rows == offset
  if not same or tonumber(known[9] or -1) ~= redis.call('HLEN', index) then return reply('stale') end
else
  if append then
    if append.job ~= number and is_under_way(plan, append) then return reply('busy') end
    room = room - remove_unfinished(key, plan, append, first, room)
    if append.jobs > 0 then return reply('preparing') end
    known[9], known[10] = unpack(redis.call('HMGET', key, 'indexed', 'indexing'))
  end
  if not build_index() or #rows > room then return reply('preparing') end
  append = {job = number, lane = lane, fence = token, rows = 0, jobs = 0, stages = {}, waits = {}}
end

local stage_base = tonumber(known[6]) + late_stages + 1
local function in_stage(text, stage)
  return (string.gsub(text, '"stage":%d+', '"stage":' .. string.format('%.0f', stage), 1))
end

-- Records the stages of targets that the deletion has and that have not ended.
local function wait_for(numbers)
  if #numbers == 0 then return end
  for _, text in ipairs(redis.call('HMGET', jobs, unpack(numbers))) do
    local record = text and decoded(text)
    if record and (not record.state or record.state == 'aside') then
      append.waits[string.format('%.0f', record.stage)] = 1
    end
  end
end

-- The jobs of this chunk that are new, and their entries of the index.
local function new_jobs()
  local names, written, entries, stages = {}, {}, {}, append.stages
  local records, present = {}, {}
  for i, row in ipairs(rows) do
    records[i] = cjson.decode(row[1])
    names[i] = identity(records[i])
  end
  if #rows == 0 or redis.call('HGET', index, '?') then return written, entries end
  for i, there in ipairs(redis.call('HMGET', index, unpack(names))) do
    if not there then
      if #stages == 0 or stages[#stages][1] ~= records[i].stage then stages[#stages + 1] = {records[i].stage, 0} end
      local stage, row = stages[#stages], rows[i]
      stage[2] = stage[2] + 1
      local at = string.format('%.0f', first + append.jobs)
      written[#written + 1] = at
      written[#written + 1] = with_times(in_stage(row[1], stage_base + #stages - 1), row[4], row[5], row[6])
      entries[#entries + 1] = names[i]
      entries[#entries + 1] = at
      append.jobs = append.jobs + 1
    elseif there ~= number and string.match(there, '^%d+$') then
      present[#present + 1] = there
    end
  end
  wait_for(present)
  return written, entries
end

local before_rows = append.jobs
local written, entries = new_jobs()
-- One stage more for the job that found them.
local stages = #append.stages + 1
-- The stage after which they come: the last one that has some of the targets already.
local behind, shape_behind = tostring(finder.stage), shape
if next(append.waits) then
  local following = shape
  while following[4] and following[4] ~= '-' do
    local stage = following[4]
    following = split(redis.call('HGET', key, 'stage.' .. stage) or '')
    if append.waits[stage] then behind, shape_behind = stage, following end
  end
end
local moves = append.jobs > 0 or behind ~= tostring(finder.stage)
if moves and (late + append.jobs > most_targets or late_stages + stages > most_stages) then
  return reply('bounds', before_rows)
end
spread('HSET', jobs, written)
spread('HSET', index, entries)
if #entries > 0 then redis.call('HSET', key, 'indexed', redis.call('HLEN', index)) end
append.rows = offset + #rows
if final == 0 then
  redis.call('HSET', key, 'appending', cjson.encode(append))
  return reply('writing', append.jobs)
end
redis.call('HDEL', key, 'appending')
if not moves then return reply('known') end

-- The last chunk: the stages, the job behind them, and the end of its lease.
local function write_stages()
  local fields, at = {}, first
  local function add(name, value)
    fields[#fields + 1] = name
    fields[#fields + 1] = value
  end
  for i, stage in ipairs(append.stages) do
    local one = stage_base + i - 1
    add('stage.' .. one, 'finally ' .. at .. ' ' .. stage[2] .. ' ' .. (one + 1))
    add('left.' .. one, stage[2])
    at = at + stage[2]
  end
  local own = stage_base + stages - 1
  add('stage.' .. own, 'finally ' .. number .. ' 1 ' .. shape_behind[4])
  add('left.' .. own, 1)
  add('stage.' .. behind, 'finally ' .. shape_behind[2] .. ' ' .. shape_behind[3] .. ' ' .. stage_base)
  late, late_stages = late + append.jobs, late_stages + stages
  add('late', late)
  add('late_stages', late_stages)
  spread('HSET', key, fields)
  redis.call('HSET', jobs, number, in_stage(next_record, own) .. ',"last_at":' .. moment() .. '}')
end

write_stages()
unshow('job:' .. job)
redis.call('ZREM', leases, job)
if redis.call('ZCOUNT', leases, token, token) == 0 then
  redis.call('ZREM', stem .. 'batches', batch_name(fence, lane, worker))
end
fresh(lane)
redis.call('XADD', stem .. 'audit', '*', 'entry', 'outcome', 'worker', worker, 'lane', lane, note, job)
decide('found late', id, string.format('%d targets in %d stages, by job ', append.jobs, stages - 1) .. job)
job_ended(id, finder.stage)
close_books()
place()
count('found', 1)
count('lane/' .. lane .. '/found', 1)
return reply('added', append.jobs)
