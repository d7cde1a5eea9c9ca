-- One page of ASSIGNED rows that lack an owner or an end gets both, so that the reclaimer takes them. A lease that a plain-SQL
-- client is completing at this moment is locked by it and skipped; the next page looks again.
UPDATE {table} AS t
   SET lease_expires_at = coalesce(t.lease_expires_at, clock_timestamp()), leased_by = coalesce(t.leased_by, 'unknown')
 WHERE t.id = ANY (ARRAY(
        SELECT c.id FROM {table} AS c
         WHERE c.state = 'ASSIGNED' AND (c.leased_by IS NULL OR c.lease_expires_at IS NULL)
         LIMIT %(n)s FOR UPDATE SKIP LOCKED))
   AND t.state = 'ASSIGNED'
