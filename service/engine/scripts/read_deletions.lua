-- Reads fields of many deletions' records in one call. It changes nothing, so that its answer is not stored.
-- args: {fields, deletion ids}; answers the values for each id, with an empty text for missing fields.
local found = {}
for i, id in ipairs(args[2]) do
  local values = redis.call('HMGET', deletion_key(id), unpack(args[1]))
  for j = 1, #args[1] do values[j] = values[j] or '' end
  found[i] = values
end
return cmsgpack.pack(found)
