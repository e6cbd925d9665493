-- Reserves tokens for lanes, from all of their limits or from none. Urgent work has priority, background work keeps its
-- share of scarce tokens, across all lanes and shards of the same limit.
-- args: {share, wants}; a want is {lane, most, urgent, background, draws}; a draw is {limit, cost, jobs to be served
-- together if tokens are scarce}. Answers {turn of this call, per want {urgent, background, again in ms (0: all was
-- granted)}}.
if repeated then return repeated end
local share, answers, MARK, SOON, LONGEST = math.min(args[1], 0.99), {}, 2000, 5, 100
local FINEST = 1.05

-- The places for background work: its credit, and the share of the others.
local function left_of(places, credit, most_credit)
  return math.floor(math.min(most_credit, credit * (1 - share) + places * share + 1e-9))
end

-- The time until urgent work gets tokens although background work waits: when there are more than its share, or when no
-- background work waits any more.
local function wait_beside(l, cost, most_credit, kept)
  local places = math.max(1, math.floor(l.credit * (1 - share)))
  while places - left_of(places, l.credit, most_credit) < 1 do places = places + 1 end
  return math.min(wait_for(l, cost * places + kept), math.max(wait_for(l, cost + kept), l.background - now))
end

-- For how many jobs a bucket must have tokens before it grants any: a lane that reads before it deletes should not read
-- for each job. At most half of the capacity, so that the bucket does not overflow meanwhile.
local function least_of(l, draw, wanted)
  if draw[3] <= 1 or draw[2] <= 0 or l.kind ~= 'bucket' then return 1 end
  return math.max(1, math.floor(math.min(draw[3], wanted, (l.capacity - l.spare) / 2 / draw[2])))
end

-- The tokens of a limit that are reserved for lanes ahead in the queue. Urgent work waits for urgent work and for one
-- background job with credit; background work that is limited to its share waits for background work. A full limit
-- serves any lane: otherwise lanes that wait for each other in different queues would deadlock.
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

-- Removes a served lane from the queues of its limits; another one keeps its position or is appended. A lane that must
-- wait much longer for another limit keeps its position without tokens; one that wants more than the capacity is not
-- queued. Returns a delay in ms, so that lanes that wait for the same tokens come in the order of their queue, and
-- served ones last.
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

-- The next rate to try, as a multiple of the declared one. Below a refused rate it is half way to that, until the
-- difference is too small; if the first step was refused, the declared rate is kept.
local function next_step(l)
  local up = math.min(l.learned * STEP, l.most)
  if l.refused_until > now and up >= l.refused then
    up = (l.learned + l.refused) / 2
    if l.learned == 1 or up < l.learned * FINEST then return l.learned end
  end
  return up
end

-- A lane waits for a limit, for `wait` ms. If lanes have waited for a whole stretch, all tokens were used; if no call
-- was throttled meanwhile, the rate is raised by one step. A stretch is long enough for a step to use up the spare
-- tokens of the bucket: before that it can't have been throttled.
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
  -- A lane without draws still shares its places between urgent and background work.
  local l = scarcest or limit({'lane ' .. want[1], 'bucket', 1000, 1000, 0, 1})
  local marked = l.urgent > now
  -- Background work that is limited to its share does not wait for several jobs.
  local waits_for_many = gathers and (urgent > 0 or not marked)
  if short and waits_for_many then n = 0 end
  local spent = math.min(background, n)
  local given_urgent, most_credit = 0, 1 + l.capacity * share
  local waits = background > 0 or l.background > now
  if urgent > 0 then
    spent = math.min(spent, math.floor(l.credit))
    l.credit = l.credit - spent
    -- Background work may wait in any lane.
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
    -- Urgent work waits for this limit: background work gets its share only.
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
  -- The marks outlast the wait: a lane that was told to come back in an hour still waits when the hour is over.
  if urgent > given_urgent then l.urgent = math.max(l.urgent, now + again + MARK) end
  if background > spent then l.background = math.max(l.background, now + again + MARK) end
  return {given_urgent, spent, math.ceil(again)}
end

for i, want in ipairs(args[2]) do answers[i] = grant(want) end
keep()
return answer({turn, answers})
