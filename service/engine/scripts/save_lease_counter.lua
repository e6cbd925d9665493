-- Saves the counter of a Lease after the API server has confirmed it. The value never decreases, and a Lease with
-- another uid or an undecodable record changes nothing: an operator decides on that. args: {field, uid of the Lease,
-- value}; answers {whether the record has this value or a higher one (0|1)}. It is idempotent, so that its answer is
-- not stored.
local key, field, uid, value = stem .. 'witnesses', args[1], args[2], args[3]
local text = redis.call('HGET', key, field)
if text then
  local fine, known = pcall(cjson.decode, text)
  if not fine or type(known) ~= 'table' or known.uid ~= uid or type(known.value) ~= 'number' then
    return cmsgpack.pack({0})
  end
  if known.value >= value then return cmsgpack.pack({1}) end
end
redis.call('HSET', key, field,
  string.format('{"v":1,"value":%.0f,"uid":%s,"at":%s}', value, cjson.encode(uid), moment()))
return cmsgpack.pack({1})
