-- One item by its idempotency key.
SELECT t.* FROM {table} AS t WHERE t.idempotency_key = %(key)s::text
