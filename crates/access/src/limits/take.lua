-- Counts an amount against a limit over the last minute, in steps of a second, on the server's
-- clock. Returns {1, step, used} if it fits, else {0, milliseconds until it would fit, used}.
local time = redis.call('TIME')
local now = tonumber(time[1])
local amount, limit = tonumber(ARGV[1]), tonumber(ARGV[2])
local all = redis.call('HGETALL', KEYS[1])
local sum, steps, old = 0, {}, {}
for i = 1, #all, 2 do
  local step, count = tonumber(all[i]), tonumber(all[i + 1])
  if step <= now - 61 then
    old[#old + 1] = all[i]
  else
    sum = sum + count
    steps[#steps + 1] = { step, count }
  end
end
if #old > 0 then
  redis.call('HDEL', KEYS[1], unpack(old))
end
if sum + amount <= limit then
  redis.call('HINCRBY', KEYS[1], now, amount)
  redis.call('EXPIRE', KEYS[1], 62)
  return { 1, now, sum + amount }
end
table.sort(steps, function(a, b) return a[1] < b[1] end)
local leaves, used = now, sum
for _, step in ipairs(steps) do
  sum = sum - step[2]
  leaves = step[1]
  if sum + amount <= limit then
    break
  end
end
return { 0, (leaves + 61 - now) * 1000 - math.floor(tonumber(time[2]) / 1000), used }
