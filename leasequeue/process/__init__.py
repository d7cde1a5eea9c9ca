"""What worker, reclaimer and operator processes share beside the engine: options, JSON logs, and what a database error asks of them."""
