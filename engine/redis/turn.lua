#!lua
-- Takes a turn of a scope, gives it back, or asks for it. For its time only the changes of who has it are applied: it is for
-- speed alone.
-- KEYS: where turns are noted. ARGV: who, and for how many ms; 0 gives it back, '' only asks; how many ms who wants a turn has
-- waited already.
-- It answers with the ms after which to ask again, 0 if nobody else has a turn or, for who wants one, has waited longer.
local call = redis.call
if not string.find(call('INFO', 'replication'), 'role:master', 1, true) then
  return redis.error_reply('READONLY this node is not a primary')
end
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local who, wanted = ARGV[1], ARGV[2]
local takes = wanted ~= '' and wanted ~= '0'
local turn, waiter = call('HGET', KEYS[1], 'turn'), call('HGET', KEYS[1], 'next')
local left, holder = 0, nil
if turn then
  local ends
  ends, holder = string.match(turn, '^(%d+) (.*)$')
  left = tonumber(ends) - now
end
if wanted == '0' then
  if holder == who then
    call('HDEL', KEYS[1], 'turn')
  end
  return 0
end
-- No turn is longer than a second: one that seems so is of a clock that went back.
local held = holder ~= who and left > 0 and left <= 1000
if not takes then
  return held and left or 0
end
-- Of those who wait the one who has waited longest is next, as long as it goes on asking.
local since = now - tonumber(ARGV[3])
local first, noted = true, false
if waiter then
  local other, asked, name = string.match(waiter, '^(%d+) (%d+) (.*)$')
  local ago = math.abs(now - tonumber(asked))
  first = name == who or tonumber(other) > since or ago > 30
  noted = name == who and ago < 8 -- each note costs the server a sync
end
if held or not first then
  if first and not noted then
    call('HSET', KEYS[1], 'next', string.format('%.0f %.0f %s', since, now, who))
  end
  return held and left or 1
end
call('HSET', KEYS[1], 'turn', string.format('%.0f %s', now + tonumber(wanted), who))
if waiter then
  call('HDEL', KEYS[1], 'next')
end
return 0
