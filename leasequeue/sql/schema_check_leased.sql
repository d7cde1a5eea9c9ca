-- No lease without an owner and an end: such a row could neither be completed nor reclaimed.
ALTER TABLE {table} ADD CONSTRAINT {name}
    CHECK (state <> 'ASSIGNED' OR (leased_by IS NOT NULL AND lease_expires_at IS NOT NULL)) {validity}
