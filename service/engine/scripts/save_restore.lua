-- Records that a cluster seems to be restored from a backup, or that an operator has accepted that. Only where the
-- record is still the one that was read before the cluster was checked, so that an older check does not undo an
-- acceptance. args: {uid of the cluster, its record as read ('' where there was none), why ('': accepted), by whom};
-- answers {whether it was saved (0|1)}.
if repeated then return repeated end
local key, cluster, seen, why = stem .. 'restored', args[1], args[2], args[3]
local text = redis.call('HGET', key, cluster)
if (text or '') ~= seen then return answer({0}) end
-- The first reason stays until it is accepted.
if why ~= '' and text and not string.find(text, '"why":""', 1, true) then return answer({0}) end
redis.call('HSET', key, cluster, string.format('{"v":1,"why":%s,"at":%s}', cjson.encode(why), moment()))
if why == '' then
  decide('restore accepted', cluster, 'by ' .. args[4])
else
  decide('restored', cluster, why)
end
return answer({1})
