#!lua
-- Takes a turn of a scope, gives it back, or asks for it. For its time only the changes of who has it are applied: it is for
-- speed alone.
-- KEYS: where the turn is noted. ARGV: who, and for how many ms; 0 gives it back, '' only asks.
-- It answers with the ms that are left of somebody else's turn, 0 if there is none.
local call = redis.call
if not string.find(call('INFO', 'replication'), 'role:master', 1, true) then
  return redis.error_reply('READONLY this node is not a primary')
end
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local turn = call('HGET', KEYS[1], 'turn')
local mine = false
if turn then
  local ends, holder = string.match(turn, '^(%d+) (.*)$')
  local left = tonumber(ends) - now
  mine = holder == ARGV[1]
  -- No turn is longer than a second: one that seems so is of a clock that went back.
  if not mine and left > 0 and left <= 1000 then
    return left
  end
end
if ARGV[2] == '0' and mine then
  call('HDEL', KEYS[1], 'turn')
elseif ARGV[2] ~= '0' and ARGV[2] ~= '' then
  call('HSET', KEYS[1], 'turn', string.format('%.0f %s', now + tonumber(ARGV[2]), ARGV[1]))
end
return 0
