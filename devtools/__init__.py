"""What tests, benchmarks and the demo share: real PostgreSQL servers. No part of the product imports it."""
