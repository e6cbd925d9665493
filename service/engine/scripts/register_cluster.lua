-- Stores the first uid that is seen under a cluster's name, unless another name of the settings has it: of two names
-- with one uid only one is stored. A uid that is pinned in the settings replaces the stored one, also under other
-- names. It is idempotent. args: {name, uid, whether it is pinned (0|1), the other names of the settings}; answers
-- {name, uid, ...} as known now.
local name, uid, pinned, others = args[1], args[2], args[3] == 1, args[4]
local key = stem .. 'clusters'
local taken = false
for _, other in ipairs(others) do
  if redis.call('HGET', key, other) == uid then
    if pinned then redis.call('HDEL', key, other) else taken = true end
  end
end
if pinned then
  redis.call('HSET', key, name, uid)
elseif not taken then
  redis.call('HSETNX', key, name, uid)
end
return cmsgpack.pack(redis.call('HGETALL', key))
