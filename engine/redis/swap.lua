-- Applies changes all or none, if and only if nothing that was read has changed, the clock is not past the limit and the
-- data is of the same lineage. Everything is checked before the first write: scripts are not rolled back.
--
-- KEYS: the bucket of each record that was read: those to create, those that are absent and stay so, those present; then
-- the indexes, and where turns are noted.
-- ARGV: limit of the clock in ms or '', lineage or '', number of replicas or '', numbers of the four groups of KEYS, who asks;
-- the field of each record; the version of each present one; for each present one its new value, '' to keep it or '-' to
-- delete it; the value of each one to create; for each index how many members to add, how many to remove, and these.
-- On a conflict it answers as reading does, so that nobody has to ask again.
local call = redis.call
local created, absent, present, indexes = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local gone = created + absent
local read = gone + present
-- What stands before the first of each list in ARGV.
local fields = 8
local versions = fields + read
local values = versions + present
local news = values + present
local members = news + created

local info = call('INFO', 'replication')
if not string.find(info, 'role:master', 1, true) then
  return redis.error_reply('READONLY this node is not a primary')
end
if ARGV[2] ~= '' and string.match(info, 'master_replid:(%x+)') ~= ARGV[2] then
  return 'lineage'
end
if ARGV[3] ~= '' and string.match(info, 'connected_slaves:(%d+)') ~= ARGV[3] then
  return 'replicas'
end
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if ARGV[1] ~= '' and now > tonumber(ARGV[1]) then
  return 'late'
end
local turn = call('HGET', KEYS[read + indexes + 1], 'turn')
if turn then
  local ends, holder = string.match(turn, '^(%d+) (.*)$')
  local left = tonumber(ends) - now
  if holder ~= ARGV[8] and left > 0 and left <= 1000 then
    return 'turn'
  end
end
local function conflict()
  local found = {}
  for i = 1, read do
    found[i] = call('HGET', KEYS[i], ARGV[fields + i])
  end
  return {
    string.format('%.0f', now),
    string.match(info, 'master_replid:(%x+)') or '',
    string.match(info, 'master_replid2:(%x+)') or '',
    found,
  }
end
for i = 1, gone do
  if call('HEXISTS', KEYS[i], ARGV[fields + i]) ~= 0 then
    return conflict()
  end
end
for i = gone + 1, read do
  local value = call('HGET', KEYS[i], ARGV[fields + i])
  if not value or string.sub(value, 1, 16) ~= ARGV[versions + i - gone] then
    return conflict()
  end
end
for i = read + 1, read + indexes do
  local kind = call('TYPE', KEYS[i]).ok
  if kind ~= 'zset' and kind ~= 'none' then
    return redis.error_reply('WRONGTYPE an index is a ' .. kind)
  end
end
for _, command in ipairs({ 'HSET', 'HDEL', 'ZADD', 'ZREM' }) do
  if not redis.acl_check_cmd(command, KEYS[1], '0', '0') then
    return redis.error_reply('NOPERM this user may not run ' .. command)
  end
end

for i = 1, created do
  call('HSET', KEYS[i], ARGV[fields + i], ARGV[news + i])
end
for i = gone + 1, read do
  local value = ARGV[values + i - gone]
  if value == '-' then
    call('HDEL', KEYS[i], ARGV[fields + i])
  elseif value ~= '' then
    call('HSET', KEYS[i], ARGV[fields + i], value)
  end
end
-- unpack takes at most some 8,000 values.
local batch = 1000
local at = members + 1
for i = read + 1, read + indexes do
  local add, remove = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
  at = at + 2
  for first = at, at + add - 1, batch do
    local scored = {}
    for m = first, math.min(first + batch, at + add) - 1 do
      scored[#scored + 1] = '0'
      scored[#scored + 1] = ARGV[m]
    end
    call('ZADD', KEYS[i], unpack(scored))
  end
  at = at + add
  for first = at, at + remove - 1, batch do
    call('ZREM', KEYS[i], unpack(ARGV, first, math.min(first + batch, at + remove) - 1))
  end
  at = at + remove
end
return 'ok'
