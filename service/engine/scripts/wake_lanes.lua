-- Rescores the lanes of a place whose budget has tokens earlier than it had announced.
-- args: {place, cursor}; answers {next cursor, lanes woken}.
if repeated then return repeated end
local stub, woken = args[1] .. '/', 0
local step = redis.call('HSCAN', stem .. 'dry', args[2], 'COUNT', 500)
for i = 1, #step[2], 2 do
  local lane = step[2][i]
  if string.sub(lane, 1, #stub) == stub then
    redis.call('HDEL', stem .. 'dry', lane)
    fresh(lane)
    woken = woken + 1
  end
end
place()
return answer({step[1], woken})
