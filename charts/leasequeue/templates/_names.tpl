{{/*
Names. The base name is cut to 63 less the longest suffix (-operator), and a name that was cut ends in a hash of the
whole, so that two long releases which differ at the end only do not meet. For the same reason the chart's name is
always added ("shop" gives shop-leasequeue, "a-leasequeue" gives a-leasequeue-leasequeue); only the release "leasequeue"
is not doubled.
*/}}
{{- define "leasequeue.name" -}}
{{- $v := include "leasequeue.values" . | fromYaml -}}
{{- include "leasequeue.cut" (dict "name" (default .Chart.Name $v.nameOverride) "max" 63) -}}
{{- end -}}

{{- define "leasequeue.fullname" -}}
{{- $v := include "leasequeue.values" . | fromYaml -}}
{{- $name := default .Chart.Name $v.nameOverride -}}
{{- $default := eq .Release.Name $name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) -}}
{{- include "leasequeue.cut" (dict "name" (default $default $v.fullnameOverride) "max" 54) -}}
{{- end -}}

{{/*
A name of at most `max` characters that a Service may have too (DNS label that starts with a letter). Whatever had to be
changed gets a hash, so that "a.b" and "a-b" do not meet either.
*/}}
{{- define "leasequeue.cut" -}}
{{- $name := .name | replace "." "-" -}}
{{- if not (regexMatch "^[a-z]" $name) }}{{ $name = printf "lq-%s" $name }}{{ end -}}
{{- if and (eq $name .name) (le (len $name) (int .max)) -}}
{{- $name -}}
{{- else -}}
{{- printf "%s-%s" (trunc (int (sub .max 9)) $name | trimSuffix "-") (sha256sum .name | trunc 8) -}}
{{- end -}}
{{- end -}}

{{- define "leasequeue.namespace" -}}
{{- $v := include "leasequeue.values" . | fromYaml -}}
{{- default .Release.Namespace $v.namespaceOverride -}}
{{- end -}}

{{/* Cluster-wide objects carry the namespace: releases of one name in two namespaces do not meet. */}}
{{- define "leasequeue.clusterName" -}}
{{- include "leasequeue.fullname" . }}.{{ include "leasequeue.namespace" . -}}
{{- end -}}

{{/* Base name of an object in NAMESPACE ("" is the release's own); in another one it carries the namespace for the same reason. */}}
{{- define "leasequeue.nameIn" -}}
{{- $root := index . 0 -}}
{{- $own := include "leasequeue.namespace" $root -}}
{{- include (eq $own (default $own (index . 1)) | ternary "leasequeue.fullname" "leasequeue.clusterName") $root -}}
{{- end -}}

{{- define "leasequeue.serviceAccountName" -}}
{{- $v := include "leasequeue.values" . | fromYaml -}}
{{- if $v.serviceAccount.create -}}
{{- default (printf "%s-operator" (include "leasequeue.fullname" .)) $v.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.name is empty and serviceAccount.create is false: name an existing ServiceAccount, or let the chart make one." $v.serviceAccount.name -}}
{{- end -}}
{{- end -}}
