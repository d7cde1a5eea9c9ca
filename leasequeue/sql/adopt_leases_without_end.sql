-- ASSIGNED rows that adopt_end_leases.sql could not have yet.
SELECT count(*) FROM {table} WHERE state = 'ASSIGNED' AND (leased_by IS NULL OR lease_expires_at IS NULL)
