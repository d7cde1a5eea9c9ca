-- Wakes listeners once a call, when the transaction commits. Listeners poll as well: behind a pooler nothing arrives.
SELECT pg_notify(%(channel)s, '')
