{{/* An image reference. Takes (list $ IMAGE) with IMAGE = {repository, tag, digest}; the digest decides. */}}
{{- define "leasequeue.image" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- $tagged := printf "%s:%s" $image.repository (default $root.Chart.AppVersion $image.tag) -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $tagged $image.digest -}}
{{- else -}}
{{- $tagged -}}
{{- end -}}
{{- end -}}

{{- define "leasequeue.imagePullSecrets" -}}
{{- range . }}
- name: {{ kindIs "string" . | ternary . (get (kindIs "string" . | ternary (dict) .) "name") | quote }}
{{- end }}
{{- end -}}
