-- Says for each lease, with a snapshot of its own, what became of it: still ASSIGNED to it, RESOLVED by it, or neither (no row).
SELECT t.id, t.state
  FROM unnest(%(ids)s::{id_type}[], %(tokens)s::uuid[]) AS lease (id, token)
  JOIN {table} AS t ON t.id = lease.id
 WHERE t.leased_by = %(worker_id)s AND t.lease_token = lease.token AND t.state IN ('ASSIGNED', 'RESOLVED')
