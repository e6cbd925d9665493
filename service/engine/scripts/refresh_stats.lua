-- Recomputes the statistics of the shard: lanes in steps, the sums after the last lane. args: {most fields, at least ms
-- since the last round}; answers {round finished (0|1)}.
if repeated then return repeated end
local stats, meta = stem .. 'stats', stem .. 'meta'
local kept = redis.call('HMGET', meta, 'survey_cursor', 'survey_due', 'survey_queued', 'survey_leased', 'survey_oldest')
local cursor = kept[1] or '0'
local last = tonumber(redis.call('HGET', stats, 'surveyed_at') or 0)
if cursor == '0' and now - last < args[2] and now >= last then return answer({1}) end
local due, queued, leased, oldest = 0, 0, 0, 0
if cursor ~= '0' then due, queued, leased, oldest = tonumber(kept[2]), tonumber(kept[3]), tonumber(kept[4]), tonumber(kept[5]) end

local function survey(lane)
  local lane_due, lane_queued, lane_oldest = 0, 0, 0
  for _, key in ipairs({lane_key(lane, false), lane_key(lane, true)}) do
    lane_due = lane_due + redis.call('ZCOUNT', key, '-inf', now)
    lane_queued = lane_queued + redis.call('ZCARD', key)
    local first = first_score(key)
    if first and first < now then lane_oldest = math.max(lane_oldest, now - first) end
  end
  local lane_leased = redis.call('ZCARD', stem .. 'leases:' .. lane)
  due, queued, leased = due + lane_due, queued + lane_queued, leased + lane_leased
  oldest = math.max(oldest, lane_oldest)
  local name = 'lane/' .. lane .. '/'
  redis.call('HSET', stats, name .. 'due', lane_due, name .. 'queued', lane_queued, name .. 'leased', lane_leased,
             name .. 'oldest', lane_oldest)
  if lane_queued + lane_leased > 0 then redis.call('HSET', stats, name .. 'seen', now)
  else redis.call('HSETNX', stats, name .. 'seen', now) end
end

local step = redis.call('HSCAN', stats, cursor, 'MATCH', 'lane/*/queued', 'COUNT', args[1])
for i = 1, #step[2], 2 do survey(string.match(step[2][i], '^lane/(.*)/queued$')) end
if step[1] ~= '0' then
  redis.call('HSET', meta, 'survey_cursor', step[1], 'survey_due', due, 'survey_queued', queued,
             'survey_leased', leased, 'survey_oldest', oldest)
  return answer({0})
end
redis.call('HDEL', meta, 'survey_cursor', 'survey_due', 'survey_queued', 'survey_leased', 'survey_oldest')
redis.call('HSET', stats, 'surveyed_at', now, 'due', due, 'queued', queued, 'leased', leased, 'oldest', oldest,
  'held', redis.call('ZCARD', stem .. 'held'), 'waiting', redis.call('ZCARD', stem .. 'waiting'), 'aside', redis.call('ZCARD', stem .. 'dead'),
  'newer', redis.call('ZCARD', stem .. 'newer'), 'open', redis.call('ZCARD', stem .. 'open'),
  'alone', redis.call('ZCARD', stem .. 'alone'),
  'events', redis.call('XLEN', stem .. 'events'), 'paused', redis.call('HLEN', stem .. 'paused'))
return answer({1})
