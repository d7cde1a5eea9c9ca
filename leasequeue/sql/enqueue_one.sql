-- Adds one item and wakes listeners, in one statement that needs no transaction around it: {bounds} bounds its waits for locks while it
-- runs (the settings of a statement outside a transaction end with it; VALUES are read before the row is inserted). A key that exists
-- already, committed or not, is left alone: DO NOTHING waits for the other transaction, returns no row, and enqueue_existing.sql then
-- reads the winner. Parameters have no type of their own: each takes its column's, so that nothing is cut or rounded by a cast.
INSERT INTO {table} AS t ({columns}, state, created_at)
VALUES ({values}, CASE {bounds} WHEN {run_at}::timestamptz > clock_timestamp() THEN 'SCHEDULED' ELSE 'PENDING' END, clock_timestamp())
ON CONFLICT (idempotency_key) DO NOTHING
RETURNING t.id{wake}
