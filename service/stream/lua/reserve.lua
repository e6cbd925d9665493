-- Tokens for the calls of lanes, from every limit they draw on or from none. Urgent work comes first, background work
-- keeps its share of what is scarce, across all lanes and shards that draw on the same limit.
-- args: {share, wants}; a want is {lane, most, urgent, background, draws}; a draw is {limit, cost}. Answers
-- {turn of this call, per want {urgent, background, again in ms (0: nothing is wanting)}}.
if repeated then return repeated end
local share, answers, MARK, SOON = math.min(args[1], 0.99), {}, 2000, 5

local function grant(want)
  local most, urgent, background = want[2], want[3], want[4]
  local n, scarcest, again = most, nil, 0
  for _, draw in ipairs(want[5]) do
    local l, cost = limit(draw[1]), draw[2]
    if cost > 0 then
      local free = math.max(0, math.floor((l.tokens - l.spare) / cost + 1e-9))
      if not scarcest or free < n then scarcest = l end
      if free < n then n = free end
    end
  end
  -- A lane that draws on nothing still shares out its places.
  local l = scarcest or limit({'lane ' .. want[1], 'bucket', 1000, 1000, 0})
  local spent = math.min(background, n)
  local marked = l.urgent > now
  local given_urgent = 0
  if urgent > 0 then
    spent = math.min(spent, math.floor(l.credit))
    given_urgent = math.min(urgent, n - spent)
    l.credit = l.credit - spent
    if given_urgent == urgent then
      spent = spent + math.min(background - spent, n - spent - given_urgent)
    end
    if background > spent or l.background > now then
      l.credit = math.min(math.max(1, l.capacity * share), l.credit + given_urgent * share / (1 - share))
    end
  elseif marked then
    -- Somebody's urgent work waits for this limit: only the share is left for us.
    spent = math.min(spent, math.floor(l.credit))
    l.credit = l.credit - spent
  end
  if urgent > given_urgent then l.urgent = now + MARK end
  if background > spent then l.background = now + MARK end
  local given = given_urgent + spent
  for _, draw in ipairs(want[5]) do
    local d = limit(draw[1])
    d.tokens = d.tokens - given * draw[2]
    d.out = d.out + given * draw[2]
  end
  if given < math.min(most, urgent + background) then
    for _, draw in ipairs(want[5]) do
      if draw[2] > 0 then again = math.max(again, wait_for(limit(draw[1]), draw[2])) end
    end
    if again < SOON then again = marked and 100 or SOON end
  end
  return {given_urgent, spent, math.ceil(again)}
end

for i, want in ipairs(args[2]) do answers[i] = grant(want) end
keep()
return answer({turn, answers})
