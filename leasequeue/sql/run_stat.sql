-- Adds one sweep's figures to the queue's totals and says when the queue was last swept without an error.
INSERT INTO leasequeue.queue_stat AS s (queue, reclaimed_total, repaired_total, swept_at)
VALUES (%(queue)s, %(reclaimed)s, %(repaired)s, clock_timestamp())
ON CONFLICT (queue) DO UPDATE
   SET reclaimed_total = s.reclaimed_total + excluded.reclaimed_total,
       repaired_total = s.repaired_total + excluded.repaired_total,
       swept_at = excluded.swept_at
RETURNING swept_at
