-- Tokens that were reserved and not used. A return counts once (a repeated one gets the same answer) and not after
-- a correction: what the provider said since then knows better.
-- args: {corrections when reserved, returns {limit, tokens}}; answers {accepted (0|1)}.
if repeated then return repeated end
local current = tonumber(redis.call('HGET', budget, 'corrections') or 0) == args[1]
for _, back in ipairs(args[2]) do
  local l = limit(back[1])
  l.out = math.max(0, l.out - back[2])
  if current then l.tokens = math.min(l.capacity, l.tokens + back[2]) end
end
keep()
return answer({current and 1 or 0})
