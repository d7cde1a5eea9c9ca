{{- define "leasequeue.selectorLabels" -}}
app.kubernetes.io/name: {{ include "leasequeue.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end -}}

{{/* Labels of every object. The chart's own win over commonLabels: selectors rest on them. */}}
{{- define "leasequeue.labels" -}}
{{- $v := include "leasequeue.values" . | fromYaml -}}
{{- $own := dict
  "app.kubernetes.io/version" (trunc 63 .Chart.AppVersion)
  "app.kubernetes.io/part-of" "leasequeue"
  "app.kubernetes.io/managed-by" .Release.Service
  "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63)
-}}
{{- $selector := include "leasequeue.selectorLabels" . | fromYaml -}}
{{- mergeOverwrite (deepCopy $v.commonLabels) $own $selector | toYaml -}}
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
name: {{ index . 1 }}
{{- with $namespace }}
namespace: {{ . }}
{{- end }}
labels:
  {{- include "leasequeue.labels" $root | nindent 2 }}
{{- with $annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
