-- Returns reserved tokens that were not used. A return counts once (a repeated call gets the same answer) and not after
-- a correction, which is more recent. args: {turn of the reservation, returns {limit, tokens}}; answers {accepted
-- (0|1)}.
if repeated then return repeated end
local accepted = 0
for _, back in ipairs(args[2]) do
  local l = limit(back[1])
  l.out = math.max(0, l.out - back[2])
  local worth = returnable(l, args[1], back[2])
  l.tokens = l.tokens + worth
  if worth > 0 then accepted = 1 end
end
keep()
return answer({accepted})
