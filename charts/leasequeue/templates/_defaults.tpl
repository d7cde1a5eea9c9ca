{{- /* Made from values.yaml by `python -m devtools.sync`: edit that file. */ -}}
{{- define "leasequeue.defaults" -}}
nameOverride: ''
fullnameOverride: ''
namespaceOverride: ''
commonLabels: {}
commonAnnotations: {}
crds:
  enabled: true
  keep: true
image:
  repository: leasequeue-operator
  tag: ''
  digest: ''
  pullPolicy: IfNotPresent
imagePullSecrets: []
queueImagePullSecrets: []
worker:
  image:
    repository: leasequeue-worker
    tag: ''
    digest: ''
reclaimer:
  image:
    repository: leasequeue-reclaimer
    tag: ''
    digest: ''
    pullPolicy: IfNotPresent
watchNamespaces: []
logLevel: info
leaderElection:
  enabled: false
  replicas: 2
  leaseDurationSeconds: 15
httpPort: 8080
extraEnv: []
podAnnotations: {}
podLabels: {}
resources:
  requests:
    cpu: 50m
    memory: 128Mi
  limits:
    memory: 512Mi
podSecurityContext:
  runAsNonRoot: true
  seccompProfile:
    type: RuntimeDefault
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop:
    - ALL
livenessProbe:
  httpGet:
    path: /healthz
    port: http
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet:
    path: /readyz
    port: http
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 3
terminationGracePeriodSeconds: 30
priorityClassName: ''
nodeSelector: {}
tolerations: []
affinity: {}
extraVolumes: []
extraVolumeMounts: []
serviceAccount:
  create: true
  name: ''
  annotations: {}
rbac:
  create: true
  aggregateClusterRoles: true
networkPolicy:
  enabled: false
  ingressFrom: []
  egress: []
metrics:
  service:
    enabled: true
    annotations: {}
  serviceMonitor:
    enabled: false
    labels: {}
    interval: 15s
    scrapeTimeout: 10s
    relabelings: []
    metricRelabelings: []
  podMonitor:
    enabled: false
    labels: {}
    interval: 15s
    scrapeTimeout: 10s
    relabelings: []
    metricRelabelings: []
  workerMonitors:
    labels: {}
prometheusRule:
  enabled: false
  namespace: ''
  labels: {}
  alertLabels: {}
  runbookBaseUrl: https://leasequeue.dev/runbooks
  operatorSelector: ''
  alerts:
    InflightHigh:
      enabled: true
      for: 5m
      severity: warning
    InflightCritical:
      enabled: true
      for: 2m
      severity: critical
    InflightExceeded:
      enabled: true
      for: 1m
      severity: critical
    AtCeiling:
      enabled: true
      for: 5m
      severity: warning
      window: 5m
    ReclaimerOverdue:
      enabled: true
      for: 2m
      severity: critical
    LeasesNotReclaimed:
      enabled: true
      for: 2m
      severity: critical
      fallbackSeconds: 600
    OldestItemTooOld:
      enabled: true
      for: 2m
      severity: warning
    LockContention:
      enabled: true
      for: 10m
      severity: warning
      window: 5m
      perSecond: 0.2
    RepairGrowing:
      enabled: true
      for: 5m
      severity: warning
      window: 1h
    LaneBlocked:
      enabled: true
      for: 10m
      severity: warning
    NoReadyWorkers:
      enabled: true
      for: 5m
      severity: critical
    DatabaseUnreachable:
      enabled: true
      for: 2m
      severity: critical
    MetricsStale:
      enabled: true
      for: 5m
      severity: warning
      slackSeconds: 60
    OperatorDown:
      enabled: true
      for: 5m
      severity: critical
dashboard:
  enabled: false
  namespace: ''
  labels:
    grafana_dashboard: '1'
  annotations: {}
testTimeoutSeconds: 60
extraObjects: []
{{- end -}}
