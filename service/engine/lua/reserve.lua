-- Tokens for the calls of lanes, from every limit they draw on or from none. Urgent work comes first, background work
-- keeps its share of what is scarce, across all lanes and shards that draw on the same limit.
-- args: {share, wants}; a want is {lane, most, urgent, background, draws}; a draw is {limit, cost, jobs that are served
-- together if it is scarce}. Answers {turn of this call, per want {urgent, background, again in ms (0: nothing is wanting)}}.
if repeated then return repeated end
local share, answers, MARK, SOON, LONGEST = math.min(args[1], 0.99), {}, 2000, 5, 100
local FINEST = 1.05

-- Of so many places, those that are left for background work: what it has earned, and what the others earn for it.
local function left_of(places, credit, most_credit)
  return math.floor(math.min(most_credit, credit * (1 - share) + places * share + 1e-9))
end

-- When urgent work gets something although background work waits: there is more than what is left for that, or
-- nobody waits for it any more.
local function wait_beside(l, cost, most_credit, kept)
  local places = math.max(1, math.floor(l.credit * (1 - share)))
  while places - left_of(places, l.credit, most_credit) < 1 do places = places + 1 end
  return math.min(wait_for(l, cost * places + kept), math.max(wait_for(l, cost + kept), l.background - now))
end

-- How many of the wanted jobs a bucket must have tokens for before it gives any: who reads before he acts should not
-- read for each one. Half of what it holds is the most, so that nothing flows over while it is waited for.
local function least_of(l, draw, wanted)
  if draw[3] <= 1 or draw[2] <= 0 or l.kind ~= 'bucket' then return 1 end
  return math.max(1, math.floor(math.min(draw[3], wanted, (l.capacity - l.spare) / 2 / draw[2])))
end

-- Of what a limit has, the tokens that are kept for lanes that have waited longer. Urgent work waits for urgent work,
-- and for the background job that has earned its turn; background work that is kept to its share waits for its like.
-- A full limit serves whoever comes: lanes that wait for each other in different lines would else wait for ever.
local function kept_of(l, want, tokens)
  local kept, urgent, earned = 0, want[3] > 0, l.credit >= 1
  for _, one in ipairs(l.line) do
    if one.lane == want[1] then break end
    if one.urgent then
      if urgent or l.urgent <= now then kept = kept + one.tokens end
    elseif not urgent or earned then
      kept, earned = kept + one.tokens, false
    end
  end
  return math.max(0, math.min(kept, l.capacity - l.spare - tokens))
end

-- Who is served leaves the lines, who is not stays in them or joins them at their ends. For who has to wait much longer
-- for another limit only the place is kept, and nothing for who wants more than there can be. Answers how many ms later
-- than told a lane comes: of those who come for the same tokens, who waits longer is first, and who was served is last.
local function line_up(want, given, again, wanted)
  local later = given > 0 and 2 * SOON or 0
  for _, draw in ipairs(want[5]) do
    local l = limit(draw[1])
    local place
    for i, one in ipairs(l.line) do
      if one.lane == want[1] then place = i end
    end
    local tokens = draw[2] * least_of(l, draw, wanted)
    local wait = wait_for(l, tokens + kept_of(l, want, tokens))
    local far = again - wait > MARK
    if given > 0 then
      if place then table.remove(l.line, place) end
    elseif draw[2] > 0 and tokens <= l.capacity - l.spare and (place or far or wait > 0) then
      place = place or math.min(#l.line + 1, LONGEST)
      tokens = far and 0 or tokens
      l.line[place] = {ends = now + again + MARK / 2, tokens = tokens, urgent = want[3] > 0, lane = want[1]}
      later = math.max(later, math.min(place - 1, SOON))
    end
  end
  return later
end

-- The next rate to try, in times of the declared one. Below one that was refused it is half way to that, until there is
-- too little between them; where the first step was refused, what is declared is what is granted.
local function next_step(l)
  local up = math.min(l.learned * STEP, l.most)
  if l.refused_until > now and up >= l.refused then
    up = (l.learned + l.refused) / 2
    if l.learned == 1 or up < l.learned * FINEST then return l.learned end
  end
  return up
end

-- Somebody waits for a limit, for so many ms. Where that has been so for a whole stretch, all that flowed in was used;
-- if nothing was refused meanwhile, there may be more, and the rate goes up by one step for everybody. A stretch is
-- long enough for a step to use up the margin that is left in the bucket: before, nobody can have refused it.
local function waited_for(l, wait)
  if l.pause > now or l.factor < 1 then
    l.waited_from = 0
    return
  end
  if l.waited_from == 0 or l.waited_from > now or l.waited_until < now then l.waited_from = now end
  l.waited_until = now + wait + MARK
  if math.abs(now - l.back_at) < QUIET then return end
  if now - l.waited_from < math.max(STRETCH, (l.spare + 1) / (rate_of(l) * (1 - 1 / STEP))) then return end
  local up = next_step(l)
  if up > l.learned then l.below, l.learned, l.waited_from = l.learned, up, now end
end

local function grant(want)
  local most, urgent, background = want[2], want[3], want[4]
  local wanted = math.min(most, urgent + background)
  local n, places, scarcest, again, short, gathers = most, nil, nil, 0, false, false
  for _, draw in ipairs(want[5]) do
    local l, cost = limit(draw[1]), draw[2]
    if cost > 0 then
      local least = least_of(l, draw, wanted)
      local has = l.tokens - kept_of(l, want, cost * least)
      local free = math.max(0, math.floor((has - l.spare) / cost + 1e-9))
      if not places or free < places then scarcest, places = l, free end
      if least > 1 then gathers, short = true, short or free < least end
    end
  end
  places = places or most
  n = math.min(most, places)
  -- A lane that draws on nothing still shares out its places.
  local l = scarcest or limit({'lane ' .. want[1], 'bucket', 1000, 1000, 0, 1})
  local marked = l.urgent > now
  -- The share of background work is small: it comes as it is earned.
  local waits_for_many = gathers and (urgent > 0 or not marked)
  if short and waits_for_many then n = 0 end
  local spent = math.min(background, n)
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
  if given < wanted then
    local left = waits_for_many and math.min(most, urgent + background - given) or 1
    for _, draw in ipairs(want[5]) do
      if draw[2] > 0 then
        local d, cost = limit(draw[1]), draw[2]
        local needed = cost * least_of(d, draw, left)
        local kept = kept_of(d, want, needed)
        again = math.max(again, wait_for(d, needed + kept))
        local short = wait_for(d, needed)
        if short > 0 and d.most > 1 then waited_for(d, short) end
        if d == l and waits and urgent > given_urgent then
          again = math.max(again, wait_beside(d, cost, most_credit, kept))
        end
      end
    end
    if again < SOON then again = marked and 100 or SOON end
  end
  local later = line_up(want, given, again, wanted)
  if again > 0 then again = again + later end
  -- The marks outlast the wait: who was told to come again in an hour is still in want when the hour is over.
  if urgent > given_urgent then l.urgent = math.max(l.urgent, now + again + MARK) end
  if background > spent then l.background = math.max(l.background, now + again + MARK) end
  return {given_urgent, spent, math.ceil(again)}
end

for i, want in ipairs(args[2]) do answers[i] = grant(want) end
keep()
return answer({turn, answers})
