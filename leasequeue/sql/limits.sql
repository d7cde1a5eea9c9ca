-- Opens every transaction of our own: bounds each wait, and keeps plans from flipping.
-- All settings are transaction-local (the third argument), so nothing leaks through a pooler to another client.
-- The planner settings leave only index access with nested loops: a plan made while the table was empty stays right when
-- it is full, whatever the statistics say. Every statement has an index for its rows; the few that read by BRIN leave plans free.
SELECT set_config('lock_timeout', {lock_timeout}, true),
       set_config('statement_timeout', {statement_timeout}, true),
       set_config('synchronous_commit', {synchronous_commit}, true),
       set_config('enable_seqscan', {free_plans}, true),
       set_config('enable_bitmapscan', {free_plans}, true),
       set_config('enable_hashjoin', {free_plans}, true),
       set_config('enable_mergejoin', {free_plans}, true),
       set_config('enable_material', {free_plans}, true),
       set_config('plan_cache_mode', {plans}, true),
       set_config('jit', 'off', true)
