-- Opens every transaction of our own: bounds each wait, and keeps plans from flipping.
-- All settings are transaction-local (the third argument), so nothing leaks through a pooler to another client.
-- The planner settings leave only index access with nested loops: a plan made while the table was empty stays right when
-- it is full, whatever the statistics say. Every statement has an index for its rows.
SELECT set_config('lock_timeout', %(lock_timeout)s, true),
       set_config('statement_timeout', %(statement_timeout)s, true),
       set_config('synchronous_commit', %(synchronous_commit)s, true),
       set_config('enable_seqscan', 'off', true),
       set_config('enable_bitmapscan', 'off', true),
       set_config('enable_hashjoin', 'off', true),
       set_config('enable_mergejoin', 'off', true),
       set_config('enable_material', 'off', true),
       set_config('jit', 'off', true)
