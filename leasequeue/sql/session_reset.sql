-- Makes a handler's connection as it was when it was opened: role, settings, what it listens to, session locks, cursors, temporary tables.
-- Before each transaction but the first: what one item's handler SET must not reach the next item. Prepared statements stay: they are
-- plans, and DISCARD ALL would throw ours away.
RESET SESSION AUTHORIZATION;
RESET ALL;
UNLISTEN *;
SELECT pg_advisory_unlock_all();
CLOSE ALL;
DISCARD TEMP
