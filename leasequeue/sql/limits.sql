-- Opens every transaction of our own: bounds each wait, and keeps plans from flipping.
-- All settings are transaction-local (the third argument is true), so nothing leaks through a pooler to another client; but on a connection
-- that one thread of a worker has for itself, with no pooler between, they are set once for the session (false), and not sent again.
-- The planner settings leave only index access with nested loops: a plan made while the table was empty stays right when
-- it is full, whatever the statistics say. Every statement has an index for its rows; the few that read by BRIN leave plans free.
SELECT set_config('lock_timeout', {lock_timeout}, {local}),
       set_config('statement_timeout', {statement_timeout}, {local}),
       set_config('synchronous_commit', {synchronous_commit}, {local}),
       set_config('enable_seqscan', {free_plans}, {local}),
       set_config('enable_bitmapscan', {free_plans}, {local}),
       set_config('enable_hashjoin', {free_plans}, {local}),
       set_config('enable_mergejoin', {free_plans}, {local}),
       set_config('enable_material', {free_plans}, {local}),
       set_config('plan_cache_mode', {plans}, {local}),
       set_config('jit', 'off', {local})
