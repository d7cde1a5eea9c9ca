{{/*
The shorter of two durations as Prometheus writes them: (list ONE OTHER). The Prometheus Operator leaves out, without a word, a
monitor whose scrapeTimeout is longer than its interval.
*/}}
{{- define "leasequeue.shorter" -}}
{{- $one := include "leasequeue.milliseconds" (index . 0) | int64 -}}
{{- $other := include "leasequeue.milliseconds" (index . 1) | int64 -}}
{{- index . (gt $one $other | ternary 1 0) -}}
{{- end -}}

{{- define "leasequeue.milliseconds" -}}
{{- $units := dict "ms" 1 "s" 1000 "m" 60000 "h" 3600000 "d" 86400000 "w" 604800000 "y" 31536000000 -}}
{{- $sum := 0 -}}
{{- range regexFindAll "[0-9]+(ms|[smhdwy])" . -1 -}}
{{- $unit := regexFind "[a-z]+" . -}}
{{- $sum = add $sum (mul (trimSuffix $unit . | int64) (get $units $unit)) -}}
{{- end -}}
{{- $sum -}}
{{- end -}}
