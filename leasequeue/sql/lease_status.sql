-- Says for each lease, with a snapshot of its own, what became of it: still ASSIGNED to it, RESOLVED by it, or neither (no row).
SELECT t.id, t.state
  FROM {table} AS t
 WHERE t.id = ANY (%(ids)s::{id_type}[])
   AND t.leased_by IS NOT DISTINCT FROM %(worker_id)s
   AND t.lease_token = ANY (%(tokens)s::uuid[])
   AND t.state IN ('ASSIGNED', 'RESOLVED')
