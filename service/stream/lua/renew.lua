-- Keeps leases: batches that still belong to this worker last longer, the others are named as lost.
-- args: {worker, lease in ms, batches {lane, fence}}; answers {now, fences that are ours no longer}.
if repeated then return repeated end
local worker, lease, strangers = args[1], args[2], {}
redis.call('ZADD', stem .. 'workers', now, worker)
for _, held in ipairs(args[3]) do
  local name = batch_name(held[2], held[1], worker)
  if redis.call('ZSCORE', stem .. 'batches', name) then
    redis.call('ZADD', stem .. 'batches', 'XX', now + lease, name)
  else
    strangers[#strangers + 1] = held[2]
  end
end
return answer({now, strangers})
