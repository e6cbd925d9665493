-- Pauses or resumes all lanes ('*') or one, for an operator. args: {lane or '*', pause (1) or resume (0), who};
-- answers {whether anything changed (0|1)}.
if repeated then return repeated end
local lane, stop, who = args[1], args[2] == 1, args[3]
local changed
if stop then
  changed = redis.call('HSETNX', stem .. 'paused', lane, 'by ' .. who .. ' at ' .. now)
else
  changed = redis.call('HDEL', stem .. 'paused', lane)
  if lane ~= '*' then rescore(lane) end
  redis.call('XADD', stem .. 'wake', 'MAXLEN', '~', 100, '*', 'next', now)
end
if changed == 1 then decide(stop and 'paused' or 'resumed', lane, 'by ' .. who) end
return answer({changed})
