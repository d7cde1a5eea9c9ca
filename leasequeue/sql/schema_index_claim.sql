-- Due rows in claim order. Order and keyset mark are both Index Conds only because no direction is mixed: hence -priority.
CREATE INDEX {concurrently} {name} ON {table} USING btree ((-priority), created_at, id) WHERE state = 'PENDING'
