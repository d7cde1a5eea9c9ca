"""A simulator over the operator's own `decide` and `shrink`, beside emulations of other autoscalers."""
