-- The first LeaseQueue resource that asks keeps the table, whatever spelling of the DSN led to it. Never takes it from another.
INSERT INTO leasequeue.owner AS o (queue, cr_uid, cr_namespace, cr_name)
VALUES (%(queue)s, %(cr_uid)s, %(cr_namespace)s, %(cr_name)s)
ON CONFLICT (queue) DO NOTHING
RETURNING o.cr_uid
