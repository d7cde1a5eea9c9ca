{{/*
The chart's values over its own defaults, as YAML. Every template reads `$v`, never .Values: an upgrade with
--reuse-values brings values of an older chart, and `--set key=null` removes a key; neither may end in a nil pointer.
A map that belongs to Kubernetes or to the user (probes, security contexts, resources, labels of the dashboard) is taken whole
where it is given, so that a null inside it removes a default as Helm's users expect.
*/}}
{{- define "leasequeue.values" -}}
{{- $given := deepCopy .Values.AsMap -}}
{{- $merged := mergeOverwrite (include "leasequeue.defaults" . | fromYaml) $given -}}
{{- range tuple "resources" "podSecurityContext" "securityContext" "livenessProbe" "readinessProbe" -}}
{{- if kindIs "map" (get $given .) }}{{ $_ := set $merged . (get $given .) }}{{ end -}}
{{- end -}}
{{- $board := get $given "dashboard" -}}
{{- if kindIs "map" $board -}}
{{- if kindIs "map" (get $board "labels") }}{{ $_ := set $merged.dashboard "labels" (get $board "labels") }}{{ end -}}
{{- end -}}
{{- $merged | toYaml -}}
{{- end -}}
