-- Unfinished items with a past: leased or crashed before, or still carrying marks of a lease that they should not have. Looks at the
-- first n PENDING ({claim_order}), the first n SCHEDULED, and the first n set aside.
SELECT c.id::text AS id, c.state, c.attempt::bigint AS attempt, c.crash_count::bigint AS crash_count,
       CASE WHEN isfinite(c.created_at) THEN extract(epoch FROM clock_timestamp() - c.created_at)::float8 END AS age_s,
       c.lease_token IS NOT NULL AS has_token,
       coalesce(c.lease_token IS NOT NULL AND c.lease_expires_at > clock_timestamp(), false) AS lease_lasts,
       c.resolved_at IS NOT NULL AS resolved
  FROM (
    (SELECT * FROM {table} AS t WHERE t.state = 'PENDING' {claim_order} LIMIT %(n)s::int)
    UNION ALL
    (SELECT * FROM {table} AS t WHERE t.state = 'SCHEDULED' ORDER BY t.run_at, t.id LIMIT %(n)s::int)
    UNION ALL
    (SELECT * FROM {table} AS t WHERE t.state = ANY (ARRAY['FAILED', 'REPAIR']) LIMIT %(n)s::int)
  ) AS c
 WHERE c.attempt >= 2 OR c.crash_count >= 1 OR c.lease_token IS NOT NULL OR c.resolved_at IS NOT NULL
 LIMIT 5000
