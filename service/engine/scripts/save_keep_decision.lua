-- Saves or removes a keep decision under a name: one line for each object, "UID JSON".
-- args: {PLACE/NAME, uid, decision as JSON ('': remove it)}; answers {1 if there was a decision for the uid, else 0}.
if repeated then return repeated end
local name, uid, said = args[1], args[2], args[3]
local lines, known = {}, 0
for line in string.gmatch(redis.call('HGET', stem .. 'decisions', name) or '', '[^\n]+') do
  if string.match(line, '^%S+') == uid then known = 1 else lines[#lines + 1] = line end
end
if said ~= '' then lines[#lines + 1] = uid .. ' ' .. said end
if #lines > 0 then
  redis.call('HSET', stem .. 'decisions', name, table.concat(lines, '\n'))
else
  redis.call('HDEL', stem .. 'decisions', name)
end
decide(said ~= '' and 'kept' or 'kept no longer', name, uid)
return answer({known})
