{{/* Quoted, as every name: a release "1e3", a namespace "2024" or a name "true" is a text, not what YAML takes it for. */}}
{{- define "leasequeue.selectorLabels" -}}
app.kubernetes.io/name: {{ include "leasequeue.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: operator
{{- end -}}

{{/* Labels of every object. */}}
{{- define "leasequeue.labels" -}}
{{- include "leasequeue.labelsWith" (list . dict) -}}
{{- end -}}

{{/*
Labels of an object that is given some of its own: (list $ LABELS). They win over commonLabels, which say less; the chart's
win over both, since selectors rest on them.
*/}}
{{- define "leasequeue.labelsWith" -}}
{{- $root := index . 0 -}}
{{- $v := include "leasequeue.values" $root | fromYaml -}}
{{- $own := dict
  "app.kubernetes.io/version" ($root.Chart.AppVersion | replace "+" "_" | trunc 63)
  "app.kubernetes.io/part-of" "leasequeue"
  "app.kubernetes.io/managed-by" $root.Release.Service
  "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" | trunc 63)
-}}
{{- $selector := include "leasequeue.selectorLabels" $root | fromYaml -}}
{{- mergeOverwrite (deepCopy $v.commonLabels) (deepCopy (index . 1)) $own $selector | toYaml -}}
{{- end -}}

{{/* Labels of the PodMonitors that the operator makes, as KEY=VALUE by commas; those of its own monitor where no others are named. */}}
{{- define "leasequeue.monitorLabels" -}}
{{- $metrics := (include "leasequeue.values" . | fromYaml).metrics -}}
{{- $labels := $metrics.workerMonitors.labels -}}
{{- range tuple $metrics.podMonitor $metrics.serviceMonitor -}}
{{- if and .enabled (not $labels) }}{{ $labels = .labels }}{{ end -}}
{{- end -}}
{{- $pairs := list -}}
{{- range $key, $value := $labels }}{{ $pairs = append $pairs (printf "%s=%s" $key $value) }}{{ end -}}
{{- join "," $pairs -}}
{{- end -}}

{{/*
The head of an object's metadata.
Takes: (list $ NAME) or (list $ NAME NAMESPACE); the namespace "" means cluster-wide; (list $ NAME NAMESPACE ANNOTATIONS).
*/}}
{{- define "leasequeue.metadata" -}}
{{- $root := index . 0 -}}
{{- $v := include "leasequeue.values" $root | fromYaml -}}
{{- $namespace := include "leasequeue.namespace" $root -}}
{{- if gt (len .) 2 }}{{ $namespace = index . 2 }}{{ end -}}
{{- $annotations := deepCopy $v.commonAnnotations -}}
{{- if gt (len .) 3 }}{{ $annotations = mergeOverwrite $annotations (deepCopy (index . 3)) }}{{ end -}}
name: {{ index . 1 | quote }}
{{- with $namespace }}
namespace: {{ . | quote }}
{{- end }}
labels:
  {{- include "leasequeue.labels" $root | nindent 2 }}
{{- with $annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
