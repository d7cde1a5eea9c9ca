-- Opens each look of the doctor: nothing can be written, no wait is long, and one look that takes too long does not cost the others.
-- The looks that are repeated read by index alone: they must not show as reads of the whole table in the counters between them.
SELECT set_config('transaction_read_only', 'on', true),
       set_config('lock_timeout', '500ms', true),
       set_config('statement_timeout', %(statement_timeout)s, true),
       set_config('enable_seqscan', %(seqscan)s, true),
       set_config('jit', 'off', true)
