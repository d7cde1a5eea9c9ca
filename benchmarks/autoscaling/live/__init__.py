"""The same loads and the operator itself, on a real Kubernetes in real time."""
