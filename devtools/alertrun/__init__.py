"""Every alert of the chart fired and resolved on a real Kubernetes, by a real Prometheus and Alertmanager.

    python -m devtools.alertrun [--pictures docs/images]

The chart is installed with its PrometheusRule and PodMonitors; only its values shorten durations. Prometheus scrapes what those
PodMonitors select, Alertmanager sends to a webhook, and each drill breaks one thing until the webhook was told, then mends it.
"""
