-- Shared by the scripts of a budget: its limits, refilled up to now. A clock that goes back refills nothing twice,
-- because the time up to which a limit was refilled never goes back.
local budget, limits = KEYS[1], {}
local FIELDS = {'tokens', 'at', 'from', 'ramp', 'pause', 'factor', 'factor_at', 'out', 'out_before', 'out_at', 'seen',
                'credit', 'urgent', 'background', 'fixed', 'since', 'learned', 'below', 'refused', 'refused_until',
                'waited_from', 'waited_until', 'back_turn', 'back_at'}
local RECOVER, FLOOR, OUT, PEAKS = 300000, 0.05, 60000, 16
-- Learning of rates: factor of one step, ms of waiting before the next step, ms without a step after one was reverted,
-- ms for which a reverted rate is not tried again, and ms for which an unused limit keeps its learned rate.
local STEP, STRETCH, QUIET, REFUSED, LEARNED = 1.25, 5000, 20000, 21600000, 604800000

-- The number of this call. `reserve` returns it, and it is passed back when tokens are returned.
local turn = tonumber(redis.call('HGET', budget, 'turn') or 0) + 1

-- Tokens per ms: the declared rate, times the learned factor, times the factor by which throttling reduced it.
local function rate_of(l)
  return l.capacity / l.per * l.factor * l.learned
end

local function refill_bucket(l)
  l.tokens = math.min(l.capacity, l.tokens + math.max(0, now - l.at) * rate_of(l))
  l.at = math.max(l.at, now)
  -- The bucket is full, so that the rate was not used up.
  if l.tokens >= l.capacity then l.waited_from = 0 end
end

-- A window is full at its start. Only in the window after a pause tokens are added evenly, to avoid a burst.
local function refill_window(l)
  if l.ramp == 1 then
    local upto = math.min(now, l.at + l.per)
    l.tokens = math.min(l.capacity, l.tokens + math.max(0, upto - l.from) * rate_of(l))
    l.from = math.max(l.from, upto)
  end
  local elapsed = now - l.at
  if elapsed >= l.per then
    l.at = l.at + math.floor(elapsed / l.per) * l.per
    l.tokens, l.ramp, l.since = l.capacity * l.factor, 0, turn
  end
end

-- The level of a bucket at each call, unless it was higher later. The oldest levels are merged.
local function note_peak(l)
  local peaks = l.peaks
  while #peaks > 0 and peaks[#peaks][2] <= l.tokens do peaks[#peaks] = nil end
  peaks[#peaks + 1] = {turn, l.tokens}
  if #peaks > PEAKS then
    peaks[2][2] = math.max(peaks[1][2], peaks[2][2])
    table.remove(peaks, 1)
  end
end

-- How many tokens of a reservation can still be returned: none after a correction, which is more recent, and none of a
-- window that is over; of a bucket only those that would not have overflowed meanwhile.
local function returnable(l, reserved, tokens)
  if reserved <= l.fixed or reserved >= turn then return 0 end
  if l.kind ~= 'bucket' then return reserved >= l.since and math.min(tokens, l.capacity - l.tokens) or 0 end
  local fullest = 0
  for _, peak in ipairs(l.peaks) do
    if peak[1] > reserved then fullest = math.max(fullest, peak[2]) end
  end
  local worth = math.max(0, math.min(tokens, l.capacity - fullest))
  for _, peak in ipairs(l.peaks) do
    if peak[1] > reserved then peak[2] = peak[2] + worth end
  end
  return worth
end

-- The queue of lanes that wait for a limit. A lane that did not come back in time is removed.
local function read_line(text)
  local line = {}
  for ends, tokens, urgent, lane in string.gmatch(text or '', '(%S+) (%S+) (%d) ([^\n]+)') do
    if tonumber(ends) > now then
      line[#line + 1] = {ends = tonumber(ends), tokens = tonumber(tokens), urgent = urgent == '1', lane = lane}
    end
  end
  return line
end

local function line_text(line)
  local texts = {}
  for i, one in ipairs(line) do
    texts[i] = string.format('%.0f %.17g %d %s', one.ends, one.tokens, one.urgent and 1 or 0, one.lane)
  end
  return table.concat(texts, '\n')
end

-- A learned rate applies to one declaration only, and not where the provider reports the remaining tokens. The spare
-- tokens, a margin for calls in flight, grow with the rate.
local function recall(l, declared)
  if not declared then
    l.learned, l.below, l.refused, l.refused_until, l.waited_from = 1, 1, 0, 0, 0
  end
  if l.seen > 0 then l.most = 1 end
  l.learned = math.max(1, math.min(l.learned, l.most))
  l.below = math.max(1, math.min(l.below, l.learned))
  l.spare = math.max(l.spare, math.min(l.capacity / 4, l.spare * l.learned))
end

local function same(text, number)
  return math.abs(tonumber(text or -1) - number) <= 1e-9 * number
end

-- A limit is {name, kind, capacity, per in ms, spare, maximum learned factor}; settings may change it while tokens are
-- reserved.
local function limit(shape)
  local name = shape[1]
  if limits[name] then return limits[name] end
  local names = {}
  for i, field in ipairs(FIELDS) do names[i] = name .. '|' .. field end
  names[#names + 1] = name .. '|capacity'
  names[#names + 1] = name .. '|per'
  names[#names + 1] = name .. '|line'
  names[#names + 1] = name .. '|peaks'
  local known = redis.call('HMGET', budget, unpack(names))
  local l = {name = name, kind = shape[2], capacity = shape[3], per = shape[4], spare = shape[5], most = shape[6],
             peaks = {}}
  for i, field in ipairs(FIELDS) do l[field] = tonumber(known[i] or 0) end
  if not known[1] then l.tokens, l.at, l.factor, l.out_at, l.since = l.capacity, now, 1, now, turn end
  for at, level in string.gmatch(known[#names] or '', '(%S+) (%S+)') do
    l.peaks[#l.peaks + 1] = {tonumber(at), tonumber(level)}
  end
  l.line = read_line(known[#names - 1])
  recall(l, same(known[#names - 3], l.capacity) and same(known[#names - 2], l.per))
  if l.factor < 1 then
    l.factor = math.min(1, l.factor + math.max(0, now - l.factor_at) / RECOVER)
    l.factor_at = math.max(l.factor_at, now)
  end
  if now - l.out_at >= OUT then
    -- Calls without a report for this long are over: their worker died.
    l.out_before, l.out, l.out_at = (now - l.out_at >= 2 * OUT) and 0 or l.out, 0, now
  end
  if l.kind == 'bucket' then refill_bucket(l) else refill_window(l) end
  l.tokens = math.min(l.tokens, l.capacity)
  if l.kind == 'bucket' then note_peak(l) end
  limits[name] = l
  limits[#limits + 1] = name
  return l
end

local function keep()
  local longest = 86400000
  for _, name in ipairs(limits) do
    local l, flat = limits[name], {}
    for _, field in ipairs(FIELDS) do
      flat[#flat + 1] = name .. '|' .. field
      flat[#flat + 1] = l[field]
    end
    local peaks = {}
    for i, peak in ipairs(l.peaks) do peaks[i] = string.format('%.0f %.17g', peak[1], peak[2]) end
    redis.call('HSET', budget, 'turn', turn, name .. '|capacity', l.capacity, name .. '|per', l.per,
               name .. '|kind', l.kind, name .. '|peaks', table.concat(peaks, ' '),
               name .. '|line', line_text(l.line), unpack(flat))
    longest = math.max(longest, 2 * l.per, (l.learned > 1 or l.refused_until > now) and LEARNED or 0)
  end
  -- After being idle for this long the budget is full again, so that the record may expire.
  redis.call('PEXPIRE', budget, math.ceil(longest))
end

-- The time until the limit has this many tokens above its spare ones, in ms.
local function wait_for(l, tokens)
  local short = tokens + l.spare - l.tokens
  if short <= 0 then return 0 end
  local rate = rate_of(l)
  if l.kind == 'bucket' then return math.max(0, l.at - now) + short / rate end
  if l.ramp == 1 then return math.min(math.max(0, l.from - now) + short / rate, l.at + l.per - now) end
  return l.at + l.per - now
end
