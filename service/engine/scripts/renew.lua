-- Records a worker's heartbeat and renews the leases of the batches that it still holds. args: {worker, lease in ms,
-- batches {lane, fence}, ms without a heartbeat after which it is dead}; answers {now, fences that it no longer holds}.
if repeated then return repeated end
local worker, lease, strangers = args[1], args[2], {}
redis.call('ZADD', stem .. 'workers', now, worker)
heartbeat(worker, args[4])
for _, held in ipairs(args[3]) do
  if holds(worker, held[2], held[1]) then
    redis.call('ZADD', stem .. 'batches', 'XX', now + lease, batch_name(held[2], held[1], worker))
  else
    strangers[#strangers + 1] = held[2]
  end
end
return answer({now, strangers})
