-- The ledger that the review queue posts to. It has no key of any kind, on purpose: nothing here stops a second posting
-- of one item, so exactly one posting an item can only come from the lease.
CREATE TABLE IF NOT EXISTS ledger_posting (
    item_id       uuid           NOT NULL,
    ledger_entity text           NOT NULL,
    amount        numeric(18, 2) NOT NULL,
    decision      text           NOT NULL,     -- AUTO_APPROVED, WITHIN_TOLERANCE or ESCALATED
    worker_id     text           NOT NULL,
    attempt       integer        NOT NULL,
    posted_at     timestamptz    NOT NULL DEFAULT clock_timestamp()
);
