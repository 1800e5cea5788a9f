#!lua
-- Writes something without meaning, so that waiting for it waits for everything before it.
-- KEYS: a key of the scope. ARGV: lineage, number of replicas.
local info = redis.call('INFO', 'replication')
if not string.find(info, 'role:master', 1, true) then
  return redis.error_reply('READONLY this node is not a primary')
end
if string.match(info, 'master_replid:(%x+)') ~= ARGV[1] then
  return 'lineage'
end
if string.match(info, 'connected_slaves:(%d+)') ~= ARGV[2] then
  return 'replicas'
end
redis.call('SET', KEYS[1], '')
return 'ok'
