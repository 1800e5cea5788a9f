#!lua flags=allow-oom
-- Reads records in one snapshot, with the server's clock and the lineage of its data.
-- KEYS: the bucket of each record. ARGV: the field of each.
-- It writes nothing, and is yet no read-only script: a replica, whose data may be old, must refuse it.
local call = redis.call
local info = call('INFO', 'replication')
if not string.find(info, 'role:master', 1, true) then
  return redis.error_reply('READONLY this node is not a primary')
end
local time = call('TIME')
local values = {}
for i = 1, #KEYS do
  values[i] = call('HGET', KEYS[i], ARGV[i])
end
return {
  string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000)),
  string.match(info, 'master_replid:(%x+)') or '',
  string.match(info, 'master_replid2:(%x+)') or '',
  values,
}
