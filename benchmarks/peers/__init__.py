"""LeaseQueue beside what else one would pick: same server, same jobs, same durability, each at its own best."""
