-- Sends the request targets of a file round and round, each built into a whole request beforehand.
-- BENCH_TARGETS: the file, one target a line. BENCH_HEADERS: what follows the target, by "|" for CRLF.
-- BENCH_OFFSET: requests of the round already sent. BENCH_CHECK: when "1", every answer is searched
-- for a failure (dear: for the check run only). Prints one line that begins with BENCH and is JSON.

local thread_of_run
local requests, sent = {}, 0
failures, first_failure = 0, ""

function setup(thread) thread_of_run = thread end

function init()
  local tail = os.getenv("BENCH_HEADERS"):gsub("|", "\r\n")
  for target in io.lines(os.getenv("BENCH_TARGETS")) do
    requests[#requests + 1] = "GET " .. target .. tail
  end
  sent = tonumber(os.getenv("BENCH_OFFSET"))
  if os.getenv("BENCH_CHECK") == "1" then
    response = function(status, headers, body)
      if status ~= 200 or body:find("14:failure reason", 1, true) then
        failures = failures + 1
        if first_failure == "" then first_failure = status .. " " .. body:sub(1, 200):gsub('[^%w %.:/-]', "?") end
      end
    end
  end
end

function request()
  sent = sent + 1
  return requests[(sent - 1) % #requests + 1]
end

function done(summary, latency, _)
  local e = summary.errors
  io.write(string.format(
    'BENCH {"requests": %d, "seconds": %.6f, "bytes": %.0f, "non_2xx": %d, "socket_errors": %d, "timeouts": %d, '
      .. '"failures": %d, "first_failure": "%s", "p50_ms": %.3f, "p90_ms": %.3f, "p99_ms": %.3f, "p999_ms": %.3f, "max_ms": %.3f}\n',
    summary.requests, summary.duration / 1e6, summary.bytes, e.status, e.connect + e.read + e.write, e.timeout,
    thread_of_run:get("failures"), thread_of_run:get("first_failure"),
    latency:percentile(50) / 1e3, latency:percentile(90) / 1e3, latency:percentile(99) / 1e3,
    latency:percentile(99.9) / 1e3, latency.max / 1e3))
end
