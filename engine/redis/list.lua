#!lua flags=allow-oom
-- Lists the fields of buckets, in the order of KEYS, until at least so many are found. ARGV: how many.
-- It answers with the number of buckets that it has looked at and the fields of each of those.
-- Like reading, it is refused by a replica.
local wanted = tonumber(ARGV[1])
local found, fields = 0, {}
for i = 1, #KEYS do
  fields[i] = redis.call('HKEYS', KEYS[i])
  found = found + #fields[i]
  if found >= wanted then
    break
  end
end
return fields
