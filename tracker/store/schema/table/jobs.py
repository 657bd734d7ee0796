"""The queues of background jobs."""

from tracker.store.schema.keys import KeySpec

ROWS: tuple[KeySpec, ...] = (
    KeySpec("t:job", "STRING", "the last job id assigned", "permanent", "enqueue.lua"),
    KeySpec(
        "t:job:<id>",
        "HASH",
        "a job. id, queue, status; fingerprint (of queue and payload); payload (JSON); retries, max_retries; "
        "priority (-10 to 10); run_after, deadline, created, started, finished (epoch ms or empty); error (of its "
        "last run); cursor (its saved position)",
        "until a day after it finished, or until 10,000 newer ones of its queue and status finished",
        "enqueue.lua, claim.lua, finish.lua, retry.lua; purge.lua deletes",
    ),
    KeySpec("t:q", "SET", "every queue that ever had a job", "permanent", "enqueue.lua"),
    KeySpec(
        "t:q:<queue>:<status>",
        "ZSET",
        "ids of a queue's jobs in this status. Score (epoch ms): for pending and retry the earliest start, for "
        "running the end of the lease, for completed and failed the end",
        "while there are such jobs",
        "enqueue.lua, claim.lua, extend.lua, finish.lua, retry.lua, purge.lua",
    ),
    KeySpec(
        "t:q:<queue>:running:tokens",
        "HASH",
        "the current token of each running job. Results with another token are ignored",
        "as long as the lease",
        "lease.lua",
    ),
    KeySpec(
        "t:q:<queue>:ready",
        "ZSET",
        "jobs that may run now, the next one first; score: the earliest start (epoch ms), minus 60,000 per point of "
        "priority, plus 1,260,000 for a retry",
        "until claimed",
        "enqueue.lua, claim.lua, finish.lua, retry.lua; purge.lua deletes",
    ),
    KeySpec(
        "t:q:<queue>:delayed",
        "ZSET",
        "jobs that may not run yet; score: the earliest start (epoch ms)",
        "until that time",
        "enqueue.lua, finish.lua; claim.lua, retry.lua, purge.lua delete",
    ),
    KeySpec(
        "t:q:<queue>:deadlines",
        "ZSET",
        "waiting jobs with a deadline; score: the deadline (epoch ms)",
        "until claimed",
        "enqueue.lua, finish.lua, retry.lua; claim.lua, purge.lua delete",
    ),
    KeySpec(
        "t:q:<queue>:fingerprints",
        "HASH",
        "fingerprint -> id of the waiting or running job with this payload",
        "until the job finishes",
        "enqueue.lua, retry.lua; claim.lua, finish.lua, purge.lua delete",
    ),
    KeySpec(
        "t:q:<queue>:limits",
        "HASH",
        "concurrency and priority of the queue, where they are not those of the settings (else empty)",
        "permanent",
        "`tracker jobs limit`, the API",
    ),
    KeySpec(
        "t:q:<queue>:slot",
        "STRING",
        "start of the last time slot whose periodic job was enqueued (epoch ms)",
        "permanent",
        "enqueue_slot.lua",
    ),
)
