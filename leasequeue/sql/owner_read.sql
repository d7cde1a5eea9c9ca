-- Which resource owns the table; its own statement, so that a snapshot taken after a lost race sees the winner.
SELECT o.cr_uid, o.cr_namespace, o.cr_name FROM leasequeue.owner AS o WHERE o.queue = %(queue)s
