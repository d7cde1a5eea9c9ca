-- Gives the table free, only by the resource that owns it.
DELETE FROM leasequeue.owner AS o WHERE o.queue = %(queue)s AND o.cr_uid = %(cr_uid)s RETURNING o.cr_uid
