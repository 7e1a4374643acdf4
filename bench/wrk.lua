-- Sends the body of the environment to each path of the environment in turn.
-- Prints the measurement as one line of JSON.
-- `%UNIQUE%` in the body is replaced by a different text in each request.
local paths = {}
for path in os.getenv("BENCH_PATHS"):gmatch("%S+") do
  paths[#paths + 1] = path
end
local headers = { ["content-type"] = "application/json" }
local token = os.getenv("BENCH_TOKEN")
if token ~= nil and token ~= "" then
  headers["authorization"] = "Bearer " .. token
end
local body = os.getenv("BENCH_BODY")
local method = os.getenv("BENCH_METHOD")
local requests = {}
local at = 0
local sent = 0
local threads = 0

setup = function(thread)
  threads = threads + 1
  thread:set("id", threads)
end

init = function()
  for index, path in ipairs(paths) do
    requests[index] = wrk.format(method, path, headers, body ~= "" and body or nil)
  end
end

request = function()
  at = at % #requests + 1
  if body:find("%UNIQUE%", 1, true) then
    sent = sent + 1
    local unique = body:gsub("%%UNIQUE%%", id .. "-" .. sent)
    return wrk.format(method, paths[at], headers, unique)
  end
  return requests[at]
end

done = function(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    '\nRESULT {"requests":%d,"failed":%d,"seconds":%f,"p50Micros":%f,"p99Micros":%f,"maxMicros":%f}\n',
    summary.requests,
    errors.connect + errors.read + errors.write + errors.status + errors.timeout,
    summary.duration / 1e6,
    latency:percentile(50),
    latency:percentile(99),
    latency.max
  ))
end
