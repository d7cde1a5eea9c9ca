-- Serialises registration and cordon of one pod's processes: a process that registers while its pod is being cordoned either sees the
-- cordon or is seen by it. Statement of its own, so that what follows has a snapshot taken under the lock.
SELECT pg_advisory_xact_lock(pod.key)::text AS locked
  FROM (SELECT hashtextextended('leasequeue.pod/' || uid, %(queue)s::bigint) AS key
          FROM unnest(%(pod_uids)s::text[]) AS given (uid) ORDER BY 1) AS pod
