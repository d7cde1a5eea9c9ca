-- The control schema: what LeaseQueue keeps beside the users' tables. Idempotent; run under the advisory lock of the schema commands.
-- Every row carries its queue as the table's oid; nothing here is written once per claim (a row updated per claim decays under a pinned xmin).
CREATE SCHEMA IF NOT EXISTS leasequeue;
-- One row a queue, written as the last step of create and adopt; queue 0 is the control schema itself.
CREATE TABLE IF NOT EXISTS leasequeue.schema_version (
    queue       oid NOT NULL DEFAULT 0 PRIMARY KEY,
    version     int NOT NULL,
    applied_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE TABLE IF NOT EXISTS leasequeue.worker (
    queue           oid NOT NULL,
    worker_id       text NOT NULL,
    pod_uid         text,
    pod_name        text,
    slots           int NOT NULL DEFAULT 1,
    held            int NOT NULL DEFAULT 0,
    running         int NOT NULL DEFAULT 0,
    claimed_total   bigint NOT NULL DEFAULT 0,
    finished_total  bigint NOT NULL DEFAULT 0,
    lost_total      bigint NOT NULL DEFAULT 0,
    busy_ms_total   bigint NOT NULL DEFAULT 0,
    started_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    cordoned_until  timestamptz,
    PRIMARY KEY (queue, worker_id)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);
CREATE TABLE IF NOT EXISTS leasequeue.owner (
    queue         oid PRIMARY KEY,
    cr_uid        text NOT NULL,
    cr_namespace  text NOT NULL,
    cr_name       text NOT NULL,
    owned_at      timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE TABLE IF NOT EXISTS leasequeue.reclaim_run (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue         oid NOT NULL,
    runner        text,
    started_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at   timestamptz,
    sweeps        int NOT NULL DEFAULT 0,
    reclaimed     bigint NOT NULL DEFAULT 0,
    repaired      bigint NOT NULL DEFAULT 0,
    promoted      bigint NOT NULL DEFAULT 0,
    deferred      bigint NOT NULL DEFAULT 0,
    pruned        bigint NOT NULL DEFAULT 0,
    assigned      bigint,
    max_inflight  int,
    exceeded      boolean NOT NULL DEFAULT false,
    error         text
);
CREATE INDEX IF NOT EXISTS reclaim_run_queue ON leasequeue.reclaim_run (queue, id DESC);
CREATE TABLE IF NOT EXISTS leasequeue.queue_stat (
    queue            oid PRIMARY KEY,
    claimed_total    bigint NOT NULL DEFAULT 0,
    finished_total   bigint NOT NULL DEFAULT 0,
    lost_total       bigint NOT NULL DEFAULT 0,
    busy_ms_total    bigint NOT NULL DEFAULT 0,
    reclaimed_total  bigint NOT NULL DEFAULT 0,
    repaired_total   bigint NOT NULL DEFAULT 0,
    swept_at         timestamptz
);
CREATE TABLE IF NOT EXISTS leasequeue.audit (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue    oid NOT NULL,
    item_id  text NOT NULL,
    at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    actor    text NOT NULL,
    action   text NOT NULL,
    reason   text
);
CREATE INDEX IF NOT EXISTS audit_item ON leasequeue.audit (queue, item_id);
