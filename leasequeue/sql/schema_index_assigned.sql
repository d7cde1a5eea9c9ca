-- ASSIGNED rows: leases of a worker, the ceiling's count, the reclaimer's search. No expiry, no token: renewal stays HOT.
CREATE INDEX {concurrently} {name} ON {table} USING btree (leased_by, id) WHERE state = 'ASSIGNED'
