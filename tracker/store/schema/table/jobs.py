"""The queues of background jobs."""

from tracker.store.schema.table.row import KeySpec

ROWS: tuple[KeySpec, ...] = (
    KeySpec("t:job", "STRING", "the last job id given out", "for ever", "enqueue.lua"),
    KeySpec(
        "t:job:<id>",
        "HASH",
        "a job: id, queue, status, fingerprint (of queue and payload), payload (JSON), retries, max_retries, "
        "priority (-10 to 10), run_after, "
        "deadline, created, started, finished (epoch ms; empty when there is none), error (of its last run), "
        "cursor (how far it came)",
        "until a day after it finished, and among the newest 10,000 of its queue and status",
        "enqueue.lua, claim.lua, finish.lua, retry.lua; purge.lua deletes",
    ),
    KeySpec("t:q", "SET", "the queues that ever had a job", "for ever", "enqueue.lua"),
    KeySpec(
        "t:q:<queue>:<status>",
        "ZSET",
        "the ids of a queue's jobs by status: pending and retry by when they may run, running by when the lease ends, "
        "completed and failed by when they finished (epoch ms)",
        "with the jobs",
        "enqueue.lua, claim.lua, extend.lua, finish.lua, retry.lua, purge.lua",
    ),
    KeySpec(
        "t:q:<queue>:running:tokens",
        "HASH",
        "the token of whoever runs each job: a result with another one is void",
        "with the lease",
        "lease.lua",
    ),
    KeySpec(
        "t:q:<queue>:ready",
        "ZSET",
        "jobs that may run, the next one first: by when they may (epoch ms), 60,000 earlier for each point of "
        "priority, "
        "1,260,000 later for a retry",
        "until claimed",
        "enqueue.lua, claim.lua, finish.lua, retry.lua",
    ),
    KeySpec(
        "t:q:<queue>:delayed",
        "ZSET",
        "jobs that may not run yet, by when they may (epoch ms)",
        "until then",
        "enqueue.lua, finish.lua; claim.lua",
    ),
    KeySpec(
        "t:q:<queue>:deadlines",
        "ZSET",
        "jobs that wait and have a deadline, by it (epoch ms)",
        "until claimed",
        "enqueue.lua, finish.lua, retry.lua; claim.lua",
    ),
    KeySpec(
        "t:q:<queue>:fingerprints",
        "HASH",
        "fingerprint -> id of the jobs that wait or run: the same payload is one job",
        "until the job finishes",
        "enqueue.lua, retry.lua; claim.lua, finish.lua",
    ),
    KeySpec(
        "t:q:<queue>:slot",
        "STRING",
        "start (epoch ms) of the last slot of time whose periodic job was enqueued",
        "for ever",
        "enqueue_slot.lua",
    ),
)
