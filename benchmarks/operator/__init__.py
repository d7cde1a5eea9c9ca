"""Many LeaseQueues on one operator: what it costs while nothing happens, and whether that stays flat."""
