-- Every lease of the table, at most n: who holds it, under which token, since when and for how long, on the database's clock.
-- Looked at twice: a lease that changes hands while it lasts shows between the two. No payload, no last_error (it may quote one).
SELECT t.id::text AS id, t.leased_by, t.lease_token::text AS token, t.lane, t.priority, t.attempt::bigint AS attempt,
       t.crash_count::bigint AS crash_count, t.resolved_at IS NOT NULL AS resolved,
       t.leased_at::text AS leased_at,
       CASE WHEN isfinite(t.leased_at) THEN extract(epoch FROM clock.now - t.leased_at)::float8 END AS leased_s,
       t.lease_expires_at IS NULL AS no_end,
       coalesce(t.lease_expires_at = 'infinity', false) AS endless,
       CASE WHEN isfinite(t.lease_expires_at) THEN extract(epoch FROM t.lease_expires_at - clock.now)::float8
            WHEN t.lease_expires_at = '-infinity' THEN -1e12::float8 END AS left_s,
       coalesce(t.lease_expires_at <= t.leased_at, false) AS ended_at_birth,
       coalesce(t.leased_at > %(adopted_at)s::timestamptz, false) AS since_adoption
  FROM {table} AS t
 CROSS JOIN (SELECT clock_timestamp() AS now) AS clock
 WHERE t.state = 'ASSIGNED'
 LIMIT %(n)s::int
