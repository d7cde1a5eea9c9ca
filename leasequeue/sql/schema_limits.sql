-- Bounds one short DDL transaction: a statement that cannot get its lock gives up, since every reader and writer that comes
-- after it queues behind it. Transaction-local.
SELECT set_config('lock_timeout', %(lock_timeout)s, true), set_config('statement_timeout', %(statement_timeout)s, true)
