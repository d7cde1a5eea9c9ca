-- Decides what an unknown COMMIT did to one lease: the row lock waits for the old connection's transaction to end, one way or the other.
SELECT t.state
  FROM {table} AS t
 WHERE t.id = %(id)s::{id_type} AND t.leased_by = %(worker_id)s AND t.lease_token = %(token)s
   FOR UPDATE
