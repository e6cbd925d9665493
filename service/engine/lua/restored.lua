-- A cluster was restored from a backup, or seems to be; or a person has accepted that. Kept only where its record is still
-- the one that was read before the cluster was looked at: what was accepted meanwhile is not brought up again by an older
-- look. args: {uid of the cluster, its record as read ('' where there was none), why ('': accepted), by whom}; answers
-- {whether it is kept (0|1)}.
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
