-- What the moves of a budget share: its limits, refilled up to now. A clock that goes back refills nothing twice,
-- because the moment up to which a limit was refilled never goes back.
local budget, limits = KEYS[1], {}
local FIELDS = {'tokens', 'at', 'from', 'ramp', 'pause', 'factor', 'factor_at', 'out', 'out_before', 'out_at', 'seen',
                'credit', 'urgent', 'background', 'fixed', 'since'}
local RECOVER, FLOOR, OUT, PEAKS = 300000, 0.05, 60000, 16

-- The number of this call: whoever reserves is told it, and names it when tokens come back unused.
local turn = tonumber(redis.call('HGET', budget, 'turn') or 0) + 1

local function refill_bucket(l)
  l.tokens = math.min(l.capacity, l.tokens + math.max(0, now - l.at) * l.capacity / l.per * l.factor)
  l.at = math.max(l.at, now)
end

-- A window is full at its start; only in the window after a pause the tokens come evenly, so that nobody stampedes.
local function refill_window(l)
  if l.ramp == 1 then
    local upto = math.min(now, l.at + l.per)
    l.tokens = math.min(l.capacity, l.tokens + math.max(0, upto - l.from) * l.capacity / l.per * l.factor)
    l.from = math.max(l.from, upto)
  end
  local elapsed = now - l.at
  if elapsed >= l.per then
    l.at = l.at + math.floor(elapsed / l.per) * l.per
    l.tokens, l.ramp, l.since = l.capacity * l.factor, 0, turn
  end
end

-- How full a bucket stood at each call, as far as it was not fuller later. Old ones are told as if they were newer.
local function note_peak(l)
  local peaks = l.peaks
  while #peaks > 0 and peaks[#peaks][2] <= l.tokens do peaks[#peaks] = nil end
  peaks[#peaks + 1] = {turn, l.tokens}
  if #peaks > PEAKS then
    peaks[2][2] = math.max(peaks[1][2], peaks[2][2])
    table.remove(peaks, 1)
  end
end

-- How much of what was reserved in a turn is still worth something: nothing after a correction, which knows better,
-- and nothing of a window that is over; of a bucket only what would not have flowed over meanwhile.
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

-- Lanes that wait for a limit, the first one first; who did not come when told is not waited for.
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

-- A limit comes as {name, kind, capacity, per in ms, spare}; settings may change it while tokens are out.
local function limit(shape)
  local name = shape[1]
  if limits[name] then return limits[name] end
  local names = {}
  for i, field in ipairs(FIELDS) do names[i] = name .. '|' .. field end
  names[#names + 1] = name .. '|line'
  names[#names + 1] = name .. '|peaks'
  local known = redis.call('HMGET', budget, unpack(names))
  local l = {name = name, kind = shape[2], capacity = shape[3], per = shape[4], spare = shape[5], peaks = {}}
  for i, field in ipairs(FIELDS) do l[field] = tonumber(known[i] or 0) end
  if not known[1] then l.tokens, l.at, l.factor, l.out_at, l.since = l.capacity, now, 1, now, turn end
  for at, level in string.gmatch(known[#names] or '', '(%S+) (%S+)') do
    l.peaks[#l.peaks + 1] = {tonumber(at), tonumber(level)}
  end
  l.line = read_line(known[#names - 1])
  if l.factor < 1 then
    l.factor = math.min(1, l.factor + math.max(0, now - l.factor_at) / RECOVER)
    l.factor_at = math.max(l.factor_at, now)
  end
  if now - l.out_at >= OUT then
    -- Calls that nobody reported for so long are over: their worker died.
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
    longest = math.max(longest, 2 * l.per)
  end
  -- Idle for so long it is full again: the record may go.
  redis.call('PEXPIRE', budget, math.ceil(longest))
end

-- When the limit will have so many tokens above its spare ones, in ms from now.
local function wait_for(l, tokens)
  local short = tokens + l.spare - l.tokens
  if short <= 0 then return 0 end
  local rate = l.capacity / l.per * l.factor
  if l.kind == 'bucket' then return math.max(0, l.at - now) + short / rate end
  if l.ramp == 1 then return math.min(math.max(0, l.from - now) + short / rate, l.at + l.per - now) end
  return l.at + l.per - now
end
