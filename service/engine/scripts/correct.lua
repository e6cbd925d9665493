-- Corrects limits by the provider's responses: answered calls, remaining tokens, and pauses.
-- args: list of {limit, answered calls, remaining (-1: not reported), age of that in ms, pause in ms (-1: none), strike
-- (0|1: a call was throttled; without a pause perhaps because of another limit), turn of the throttled call's
-- reservation (0: unknown)}; answers {earlier (0|1): tokens are available sooner than lanes were told, pauses {limit,
-- ms left}}.
if repeated then return repeated end
local earlier, pauses = 0, {}

-- Whether a throttled call was sent before the last step was reverted: then it says nothing new.
local function on_its_way(l, reserved)
  if reserved > 0 then return reserved <= l.back_turn end
  return math.abs(now - l.back_at) < STRETCH
end

-- Throttling above the declared rate reverts the last step, and that rate is not tried again for hours. False: the
-- throttling concerns the declared rate.
local function taken_back(l, reserved)
  if on_its_way(l, reserved) then return true end
  if l.learned <= 1 then return false end
  l.refused, l.refused_until = l.learned, now + REFUSED
  l.learned = l.below
  l.below = math.max(1, l.learned / STEP)
  l.back_turn, l.back_at = turn, now
  return true
end

-- Where a response does not say which limit of the call was exceeded, one that is in demand above its declared rate is
-- the likely one. It is emptied then, and the reported limits are not reduced.
local explained = false
for _, said in ipairs(args) do
  if said[5] < 0 and said[6] == 1 then
    local l = limit(said[1])
    if (on_its_way(l, said[7]) or l.waited_until >= now) and taken_back(l, said[7]) then
      explained = true
      if l.back_turn == turn then l.tokens, l.fixed = math.min(l.tokens, 0), turn end
    end
  end
end

for _, said in ipairs(args) do
  local l = limit(said[1])
  local answered, remaining, age, pause = said[2], said[3], said[4], said[5]
  local from_before = math.min(l.out_before, answered)
  l.out_before = l.out_before - from_before
  l.out = math.max(0, l.out - (answered - from_before))
  if remaining >= 0 and now - age >= l.seen then
    -- The remaining tokens at the provider, less those of calls in flight, may still be used.
    local tokens = math.max(0, math.min(l.capacity, remaining - l.out - l.out_before))
    if l.pause <= now then
      if tokens > l.tokens and l.tokens - l.spare < 1 and tokens - l.spare >= 1 then earlier = 1 end
      -- A window gets no more tokens than the reported rest.
      l.tokens, l.ramp = tokens, 0
    end
    l.seen, l.fixed = now - age, turn
  end
  if pause >= 0 then
    local until_ = now + pause
    local learned = said[6] == 1 and taken_back(l, said[7])
    if until_ > l.pause then
      if l.pause <= now and said[6] == 1 and not learned and not explained then
        l.factor = math.max(FLOOR, l.factor * 0.7)
        l.factor_at = now
      end
      l.pause = until_
    end
    -- After a pause a limit starts empty and is refilled evenly. If the clock went back, the pause may end before the
    -- present window, which then stays empty to its end.
    local ramp = (l.kind == 'window' and l.pause > l.at) and 1 or 0
    l.tokens, l.at, l.from, l.ramp = 0, math.max(l.at, l.pause), math.max(l.at, l.pause), ramp
    l.fixed = turn
    pauses[#pauses + 1] = {l.name, l.pause - now}
  end
end
keep()
return answer({earlier, pauses})
