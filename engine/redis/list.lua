#!lua flags=allow-oom
-- Lists the fields of buckets, in the order of KEYS, until at least so many are found. ARGV: how many.
-- It answers with the number of buckets that it has looked at, and the fields.
-- Like reading, it is refused by a replica.
local call = redis.call
local wanted = tonumber(ARGV[1])
local fields = {}
local looked = 0
while looked < #KEYS and #fields < wanted do
  local last = math.min(looked + 128, #KEYS)
  -- Most buckets of a small store are empty.
  if call('EXISTS', unpack(KEYS, looked + 1, last)) == 0 then
    looked = last
  end
  while looked < last and #fields < wanted do
    looked = looked + 1
    for _, field in ipairs(call('HKEYS', KEYS[looked])) do
      fields[#fields + 1] = field
    end
  end
end
return { looked, fields }
