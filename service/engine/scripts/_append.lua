-- Shared by the scripts that add late targets or remove what an unfinished append wrote. `targets:PLAN` is the index of
-- all targets of a deletion: identity -> job number.
local function index_of(plan) return stem .. 'targets:' .. plan end

-- What tells two resources apart; nil where the record does not say.
local function identity(record)
  if not record.kind or not record.target then return nil end
  return cjson.encode({record.kind, record.target, record.incarnation or ''})
end

-- Whether the job of an append still has the lease under which it began.
local function is_under_way(plan, append)
  return redis.call('ZSCORE', stem .. 'leases:' .. append.lane, plan .. '.' .. append.job) == append.fence
end

-- Removes jobs of an unfinished append, at most `room` of them and the last ones first, and forgets the append once none
-- is left. `first` is the number of its first job. Returns how many were removed.
local function remove_unfinished(key, plan, append, first, room)
  local part, numbers, targets, unknown = math.min(append.jobs, room), {}, {}, false
  local size = tonumber(redis.call('HGET', key, 'indexed') or -1)
  local intact = size == redis.call('HLEN', index_of(plan))
  for i = 1, part do numbers[i] = first + append.jobs - i end
  if part > 0 then
    for _, text in ipairs(redis.call('HMGET', stem .. 'job:' .. plan, unpack(numbers))) do
      local record = text and decoded(text)
      if record then targets[#targets + 1] = identity(record) else unknown = true end
    end
    spread('HDEL', stem .. 'job:' .. plan, numbers)
    spread('HDEL', index_of(plan), targets)
  end
  append.jobs = append.jobs - part
  if append.jobs > 0 then redis.call('HSET', key, 'appending', cjson.encode(append))
  else redis.call('HDEL', key, 'appending') end
  -- Without its record a target would remain in the index, and never be added; and what a lost index had would be added
  -- again: the index is built anew.
  if unknown or size >= 0 and not intact then redis.call('HDEL', key, 'indexed', 'indexing')
  elseif part > 0 and intact then redis.call('HSET', key, 'indexed', redis.call('HLEN', index_of(plan))) end
  return part
end
