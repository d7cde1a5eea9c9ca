{{- /* Made from operator/leasequeue_operator/rights.py by `python -m devtools.sync`: edit that file. */ -}}
{{- define "leasequeue.rules" -}}
# To read the queues.
- apiGroups: ["leasequeue.dev"]
  resources: ["leasequeues"]
  verbs: ["list", "watch"]
# To write their status.
- apiGroups: ["leasequeue.dev"]
  resources: ["leasequeues/status"]
  verbs: ["patch"]
# To make and watch the workers.
- apiGroups: ["apps"]
  resources: ["deployments"]
  verbs: ["get", "list", "watch", "create", "patch"]
# To set the number of workers.
- apiGroups: ["apps"]
  resources: ["deployments/scale"]
  verbs: ["patch"]
# To make and watch the reclaimer.
- apiGroups: ["batch"]
  resources: ["cronjobs"]
  verbs: ["get", "list", "watch", "create", "patch"]
# To make the schema Job, see runs of the reclaimer.
- apiGroups: ["batch"]
  resources: ["jobs"]
  verbs: ["get", "list", "watch", "create"]
# To say why workers do not start, mark those that may go (deletion cost).
- apiGroups: [""]
  resources: ["pods"]
  verbs: ["list", "watch", "patch"]
# To make the pods' ServiceAccount, which has no rights.
- apiGroups: [""]
  resources: ["serviceaccounts"]
  verbs: ["get", "create", "patch"]
# To read the database connection.
- apiGroups: [""]
  resources: ["secrets"]
  verbs: ["get"]
# To tell about transitions.
- apiGroups: [""]
  resources: ["events"]
  verbs: ["create"]
# To stand down where another autoscaler acts.
- apiGroups: ["autoscaling"]
  resources: ["horizontalpodautoscalers"]
  verbs: ["list"]
# To make the PodMonitor.
- apiGroups: ["monitoring.coreos.com"]
  resources: ["podmonitors"]
  verbs: ["get", "create", "patch"]
{{- end -}}
