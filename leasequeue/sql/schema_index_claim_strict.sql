-- The claim index of a queue with strict lanes: rows of lanes have an index of their own and must not be walked over here.
CREATE INDEX {concurrently} {name} ON {table} USING btree ((-priority), created_at, id) WHERE state = 'PENDING' AND lane IS NULL
