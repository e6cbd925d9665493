-- Tokens for the calls of lanes, from every limit they draw on or from none. Urgent work comes first, background work
-- keeps its share of what is scarce, across all lanes and shards that draw on the same limit.
-- args: {share, wants}; a want is {lane, most, urgent, background, draws}; a draw is {limit, cost}. Answers
-- {turn of this call, per want {urgent, background, again in ms (0: nothing is wanting)}}.
if repeated then return repeated end
local share, answers, MARK, SOON = math.min(args[1], 0.99), {}, 2000, 5

-- Of so many places, those that are left for background work: what it has earned, and what the others earn for it.
local function left_of(places, credit, most_credit)
  return math.floor(math.min(most_credit, credit * (1 - share) + places * share + 1e-9))
end

-- When urgent work gets something although background work waits: there is more than what is left for that, or
-- nobody waits for it any more.
local function wait_beside(l, cost, most_credit)
  local places = math.max(1, math.floor(l.credit * (1 - share)))
  while places - left_of(places, l.credit, most_credit) < 1 do places = places + 1 end
  return math.min(wait_for(l, cost * places), math.max(wait_for(l, cost), l.background - now))
end

local function grant(want)
  local most, urgent, background = want[2], want[3], want[4]
  local n, places, scarcest, again = most, nil, nil, 0
  for _, draw in ipairs(want[5]) do
    local l, cost = limit(draw[1]), draw[2]
    if cost > 0 then
      local free = math.max(0, math.floor((l.tokens - l.spare) / cost + 1e-9))
      if not places or free < places then scarcest, places = l, free end
    end
  end
  places = places or most
  n = math.min(most, places)
  -- A lane that draws on nothing still shares out its places.
  local l = scarcest or limit({'lane ' .. want[1], 'bucket', 1000, 1000, 0})
  local spent = math.min(background, n)
  local marked = l.urgent > now
  local given_urgent, most_credit = 0, 1 + l.capacity * share
  local waits = background > 0 or l.background > now
  if urgent > 0 then
    spent = math.min(spent, math.floor(l.credit))
    l.credit = l.credit - spent
    -- Whichever lane it waits in.
    local left = waits and left_of(places - spent, l.credit, most_credit) or 0
    given_urgent = math.max(0, math.min(urgent, n - spent, places - spent - left))
    if waits then l.credit = math.min(most_credit, l.credit + given_urgent * share / (1 - share)) end
    local more = math.min(background - spent, n - spent - given_urgent)
    if given_urgent < urgent or marked then
      more = math.min(more, math.floor(l.credit))
      l.credit = l.credit - more
    end
    spent = spent + more
  elseif marked then
    -- Somebody's urgent work waits for this limit: only the share is left for us.
    spent = math.min(spent, math.floor(l.credit))
    l.credit = l.credit - spent
  end
  local given = given_urgent + spent
  for _, draw in ipairs(want[5]) do
    local d = limit(draw[1])
    d.tokens = d.tokens - given * draw[2]
    d.out = d.out + given * draw[2]
  end
  if given < math.min(most, urgent + background) then
    for _, draw in ipairs(want[5]) do
      if draw[2] > 0 then
        local d = limit(draw[1])
        local beside = d == l and waits and urgent > given_urgent
        again = math.max(again, beside and wait_beside(d, draw[2], most_credit) or wait_for(d, draw[2]))
      end
    end
    if again < SOON then again = marked and 100 or SOON end
  end
  -- The marks outlast the wait: who was told to come again in an hour is still in want when the hour is over.
  if urgent > given_urgent then l.urgent = math.max(l.urgent, now + again + MARK) end
  if background > spent then l.background = math.max(l.background, now + again + MARK) end
  return {given_urgent, spent, math.ceil(again)}
end

for i, want in ipairs(args[2]) do answers[i] = grant(want) end
keep()
return answer({turn, answers})
