{{/*
The chart's values over its own defaults, as YAML. Every template reads `$v`, never .Values: an upgrade with
--reuse-values brings values of an older chart, and `--set key=null` removes a key; neither may end in a nil pointer.
A map that belongs to Kubernetes (probes, security contexts, resources) is taken whole where it is given, so that a
null inside it removes a default as Helm's users expect.
*/}}
{{- define "leasequeue.values" -}}
{{- $given := deepCopy .Values.AsMap -}}
{{- $merged := mergeOverwrite (include "leasequeue.defaults" . | fromYaml) $given -}}
{{- range tuple "resources" "podSecurityContext" "securityContext" "livenessProbe" "readinessProbe" -}}
{{- if kindIs "map" (get $given .) }}{{ $_ := set $merged . (get $given .) }}{{ end -}}
{{- end -}}
{{- $merged | toYaml -}}
{{- end -}}
