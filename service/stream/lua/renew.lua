-- Keeps leases: those that still belong to this worker last longer, the others are named as lost.
-- args: {worker, lease in ms, lanes {name, {job, fence, ...}}}; answers {now, jobs that are ours no longer}.
if repeated then return repeated end
local worker, lease, strangers = args[1], args[2], {}
redis.call('ZADD', stem .. 'workers', now, worker)
for _, entry in ipairs(args[3]) do
  local lane, pairs_ = entry[1], entry[2]
  local ends = {}
  for i = 1, #pairs_, 2 do
    local holder = redis.call('HGET', stem .. 'holders:' .. lane, pairs_[i])
    if holder == string.format('%.0f', pairs_[i + 1]) .. ' ' .. worker then
      ends[#ends + 1] = now + lease
      ends[#ends + 1] = pairs_[i]
    else
      strangers[#strangers + 1] = pairs_[i]
    end
  end
  if #ends > 0 then spread('ZADD', stem .. 'leases:' .. lane, ends, 'XX') end
end
return answer({now, strangers})
