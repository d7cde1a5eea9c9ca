-- Stores the result of an item that this transaction has just resolved (the fence came first, the result is known last).
UPDATE {table} AS t
   SET result = %(result)s::jsonb
 WHERE t.id = %(id)s::{id_type}
   AND t.state = 'RESOLVED' AND t.leased_by = %(worker_id)s AND t.lease_token = %(token)s
RETURNING t.id
