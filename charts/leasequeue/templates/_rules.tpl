{{/*
What the operator may do: exactly what operator/leasequeue_operator/rights.py lists (tests/chart compares). No list or
watch of Secrets: one is read by the name its LeaseQueue gives. No delete of anything it did not make can follow from
these rules alone; children are deleted by their owner references and by uid.
*/}}
{{- define "leasequeue.rules" -}}
- apiGroups: [leasequeue.dev]
  resources: [leasequeues]
  verbs: [get, list, watch]
- apiGroups: [leasequeue.dev]
  resources: [leasequeues/status]
  verbs: [get, patch]
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [batch]
  resources: [cronjobs, jobs]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [serviceaccounts]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, patch]
- apiGroups: [""]
  resources: [secrets]
  verbs: [get]
- apiGroups: [""]
  resources: [events]
  verbs: [create, patch]
- apiGroups: [monitoring.coreos.com]
  resources: [podmonitors]
  verbs: [get, list, watch, create, patch, delete]
{{- end -}}
