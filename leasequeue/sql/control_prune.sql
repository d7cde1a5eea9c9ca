-- Forgets queues whose table is gone: an oid may be given to another table one day, which must not inherit their rows.
-- The audit log is kept.
DELETE FROM leasequeue.worker c WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_class t WHERE t.oid = c.queue);
DELETE FROM leasequeue.owner c WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_class t WHERE t.oid = c.queue);
DELETE FROM leasequeue.queue_stat c WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_class t WHERE t.oid = c.queue);
DELETE FROM leasequeue.reclaim_run c WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_class t WHERE t.oid = c.queue);
DELETE FROM leasequeue.schema_version c
 WHERE c.queue <> 0 AND NOT EXISTS (SELECT FROM pg_catalog.pg_class t WHERE t.oid = c.queue);
