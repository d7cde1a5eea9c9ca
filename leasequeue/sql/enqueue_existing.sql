-- The rows that hold these keys, by a statement of its own: its snapshot is younger than the insert's, so it sees the winner of a race.
SELECT t.idempotency_key, t.id FROM {table} AS t WHERE t.idempotency_key = ANY (%(keys)s::text[])
