{{/* Names, labels, and the image. */}}

{{- define "xds-relay.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* Short enough for "-headless" behind it, in a DNS label. */}}
{{- define "xds-relay.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- default $full .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "xds-relay.selectorLabels" -}}
app.kubernetes.io/name: {{ include "xds-relay.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "xds-relay.labels" -}}
{{ include "xds-relay.selectorLabels" . }}
app.kubernetes.io/component: {{ .Values.mode }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "xds-relay.image" -}}
{{- with .Values.image -}}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag | default (printf "v%s" $.Chart.AppVersion) }}{{ end -}}
{{- end -}}
{{- end -}}

{{- define "xds-relay.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (ternary (include "xds-relay.fullname" .) "default" .Values.serviceAccount.create) -}}
{{- end -}}

{{/* The kind that runs the pods of a tier: with a claim for each replica it is a StatefulSet. */}}
{{- define "xds-relay.kind" -}}
{{- if eq .Values.mode "daemonset" }}DaemonSet{{ else if and (eq .Values.mode "deployment") .Values.snapshot.enabled .Values.snapshot.persistent }}StatefulSet{{ else }}Deployment{{ end -}}
{{- end -}}

{{/* Whether there are pods of the chart's own: a sidecar may be in somebody else's. */}}
{{- define "xds-relay.hasPods" -}}
{{- if or (ne .Values.mode "sidecar") .Values.sidecar.workload }}true{{ end -}}
{{- end -}}

{{/* Of the pod of `helm test`. */}}
{{- define "xds-relay.testLabels" -}}
app.kubernetes.io/name: {{ include "xds-relay.name" . }}-test
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}
