"""`make demo`: the review queue on a real Kubernetes, with a killed worker and a checked summary."""
