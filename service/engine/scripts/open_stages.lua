-- Moves the jobs of opening stages into their lanes, a bounded number at a time, and continues where it stopped.
-- args: {most}; answers {jobs moved, stages still opening}.
if repeated then return repeated end
local most, moved, done = args[1], 0, {}
for _, member in ipairs(redis.call('ZRANGE', stem .. 'opening', 0, most - 1)) do
  if moved >= most then break end
  local id, stage = string.match(member, '^(.*)|(%d+)$')
  local key = deletion_key(id)
  local known = redis.call('HMGET', key, 'plan', 'stage.' .. stage, 'cursor.' .. stage)
  if known[1] and known[2] then
    local shape = split(known[2])
    local from, last = tonumber(shape[2]), tonumber(shape[3])
    local cursor = tonumber(known[3] or 0)
    if cursor == 0 then redis.call('HSET', key, 'opened.' .. stage, now) end
    local part = math.min(last - cursor, most - moved)
    local numbers = {}
    for i = 1, part do numbers[i] = from + cursor + i - 1 end
    local jobs = stem .. 'job:' .. id .. '#' .. known[1]
    local texts = redis.call('HMGET', jobs, unpack(numbers))
    for i, text in ipairs(texts) do
      local record = text and decoded(text)
      -- A job that was abandoned before its stage opened has ended already.
      if record and not record.state then
        local due = math.max(now, record.due or 0)
        if record.after then
          -- Stored as a due time, which survives the loss of a lane.
          due = now + record.after
          local told = string.gsub(text, '"after":%d+', '"due":' .. string.format('%.0f', due))
          redis.call('HSET', jobs, numbers[i], told)
        end
        enter(id .. '#' .. known[1] .. '.' .. numbers[i], record.lane, is_urgent(record), due)
      end
    end
    cursor, moved = cursor + part, moved + part
    if cursor < last then
      redis.call('HSET', key, 'cursor.' .. stage, cursor)
    else
      redis.call('HDEL', key, 'cursor.' .. stage)
      done[#done + 1] = member
      if redis.call('HGET', key, 'left.' .. stage) == '0' then stage_ended(id, tonumber(stage)) end
    end
  else
    done[#done + 1] = member
  end
end
if #done > 0 then spread('ZREM', stem .. 'opening', done) end
close_books()
place()
return answer({moved, redis.call('ZCARD', stem .. 'opening')})
