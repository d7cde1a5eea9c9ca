-- Opens the record of a reclaimer run.
INSERT INTO leasequeue.reclaim_run (queue, runner, max_inflight)
VALUES (%(queue)s, %(runner)s, %(max_inflight)s)
RETURNING id
