-- Prologue of every script: its arguments, the server's time, and the stored answer for a repeated call.
-- KEYS[1] routes the call to its slot; ARGV: stem of all keys, clock offset (tests only), request id, arguments.
local stem, request = ARGV[1], ARGV[3]
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000) + tonumber(ARGV[2])
local memory = stem .. 'answer:' .. request
local REMEMBER = 60000
local repeated = redis.call('GET', memory)
local args = cmsgpack.unpack(ARGV[4])

-- Lua's stack limits unpack: longer lists are split into several commands.
local SPREAD = 1000

local function spread(command, key, list, option)
  local length = #list
  if length > 0 and length <= SPREAD and not option then
    redis.call(command, key, unpack(list))
    return
  end
  for first = 1, length, SPREAD do
    local last = math.min(first + SPREAD - 1, length)
    if option then
      redis.call(command, key, option, unpack(list, first, last))
    else
      redis.call(command, key, unpack(list, first, last))
    end
  end
end

-- The stored answer may be shorter than the one returned: `take` stores ids, not records.
local function answer(value, remembered)
  local packed = cmsgpack.pack(value)
  redis.call('SET', memory, remembered and cmsgpack.pack(remembered) or packed, 'PX', REMEMBER)
  return packed
end
