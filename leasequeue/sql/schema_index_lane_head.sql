-- The oldest unfinished row of each lane, whatever its state: what blocks the lane.
CREATE INDEX {concurrently} {name} ON {table} USING btree (lane, created_at, id) WHERE lane IS NOT NULL AND state <> 'RESOLVED'
