-- What people did to one item, newest last.
SELECT a.at, a.actor, a.action, a.reason
  FROM leasequeue.audit AS a
 WHERE a.queue = %(queue)s AND a.item_id = %(item_id)s
 ORDER BY a.id
 LIMIT 100
