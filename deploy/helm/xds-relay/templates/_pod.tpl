{{/* What the pods of all modes have in common. */}}

{{- define "xds-relay.podMeta" -}}
# Without the chart's version: another one alone does not replace pods.
labels:
  {{- include "xds-relay.selectorLabels" . | nindent 2 }}
  app.kubernetes.io/component: {{ .Values.mode }}
  {{- with .Values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
annotations:
  kubectl.kubernetes.io/default-container: {{ ternary "envoy" "xds-relay" (eq .Values.mode "sidecar") }}
  xds-relay/restart-checksum: {{ include "xds-relay.restartChecksum" . }}
  {{- with .Values.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{- define "xds-relay.podSecurityContext" -}}
runAsNonRoot: true
# Of Secrets, and of the socket that a sidecar shares with its Envoy.
fsGroup: 65532
# A claim's files keep their modes: the relay refuses a snapshot that its group may write to.
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "xds-relay.scheduling" -}}
serviceAccountName: {{ include "xds-relay.serviceAccountName" . }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- include "xds-relay.podSecurityContext" . | nindent 2 }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if ne .Values.mode "daemonset" }}
# Over zones first, then over nodes, as far as it goes.
topologySpreadConstraints:
  {{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
  - topologyKey: {{ . }}
    maxSkew: 1
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "xds-relay.selectorLabels" $ | nindent 8 }}
    # Pods of one revision are spread, so that a rollout does not count the old ones.
    matchLabelKeys: [{{ ternary "controller-revision-hash" "pod-template-hash" (eq (include "xds-relay.kind" $) "StatefulSet") }}]
  {{- end }}
{{- end }}
{{- end -}}

{{/* 90 % of a quantity of memory, as Go's GOMEMLIMIT wants it. */}}
{{- define "xds-relay.goMemLimit" -}}
{{- $units := dict "" 1 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 -}}
{{- $text := ternary (int64 . | toString) (toString .) (kindIs "float64" .) -}}
{{- $unit := regexFind "[A-Za-z]*$" $text -}}
{{- $number := trimSuffix $unit $text -}}
{{- if not (and (hasKey $units $unit) (regexMatch "^[0-9.]+$" $number)) -}}
{{- fail (printf "resources.limits.memory: %s is no quantity such as 900Mi or 1Gi" $text) -}}
{{- end -}}
{{- divf (mulf (float64 $number) (get $units $unit) 0.9) 1048576 | floor | int64 }}MiB
{{- end -}}

{{- define "xds-relay.resources" -}}
{{- ternary .Values.sidecar.resources .Values.resources (eq .Values.mode "sidecar") | default dict | toYaml -}}
{{- end -}}

{{- define "xds-relay.container" -}}
{{- $resources := fromYaml (include "xds-relay.resources" .) -}}
name: xds-relay
image: {{ include "xds-relay.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
args: [serve, -c, /etc/xds-relay/relay.yaml]
env:
  - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
  - {name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
  {{- with dig "limits" "memory" "" $resources }}
  - {name: GOMEMLIMIT, value: {{ include "xds-relay.goMemLimit" . }}}
  {{- end }}
  {{- with .Values.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
ports:
  {{- if ne .Values.mode "sidecar" }}
  - {name: xds, containerPort: {{ include "xds-relay.port.xds" . }}}
  {{- with include "xds-relay.port.rest" . }}
  - {name: rest, containerPort: {{ . }}}
  {{- end }}
  {{- end }}
  - {name: metrics, containerPort: {{ include "xds-relay.port.metrics" . }}}
startupProbe:
  {{- if eq .Values.mode "sidecar" }}
  # The relay was ready once: it listens, and has what config.downstream.ready_types names.
  httpGet: {path: /startupz, port: metrics}
  {{- else }}
  # It has read its snapshot. To be started again helps no relay that waits for its control plane.
  httpGet: {path: /livez, port: metrics}
  {{- end }}
  periodSeconds: 1
  failureThreshold: 120
# The process makes progress, whatever the control plane does.
livenessProbe:
  httpGet: {path: /livez, port: metrics}
  periodSeconds: 10
  timeoutSeconds: 5
{{- if ne .Values.mode "sidecar" }}
# It listens, has what config.downstream.ready_types names, and does not drain.
readinessProbe:
  httpGet: {path: /readyz, port: metrics}
  periodSeconds: 2
  timeoutSeconds: 2
{{- else }}
# No readinessProbe: a pod gets traffic if its Envoy is ready.
{{- end }}
{{- with $resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- include "xds-relay.containerSecurityContext" . | nindent 2 }}
volumeMounts:
  - {name: xds-relay-config, mountPath: /etc/xds-relay, readOnly: true}
  {{- if .Values.snapshot.enabled }}
  - {name: xds-relay-state, mountPath: /var/lib/xds-relay}
  {{- end }}
  {{- if eq .Values.mode "sidecar" }}
  - {name: xds-relay-socket, mountPath: /run/xds-relay}
  {{- end }}
  {{- range include "xds-relay.hops" . | fromYamlArray }}
  - {name: xds-relay-tls-{{ . }}, mountPath: /var/run/xds-relay/{{ . }}, readOnly: true}
  {{- end }}
  {{- with .Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{- define "xds-relay.containerSecurityContext" -}}
runAsUser: 65532
runAsGroup: 65532
runAsNonRoot: true
readOnlyRootFilesystem: true
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
{{- end -}}

{{/* The hops that have certificates from a Secret. */}}
{{- define "xds-relay.hops" -}}
{{- $hops := list -}}
{{- if .Values.tls.upstream.secretName }}{{ $hops = append $hops "upstream" }}{{ end -}}
{{- if and .Values.tls.downstream.secretName (ne .Values.mode "sidecar") }}{{ $hops = append $hops "downstream" }}{{ end -}}
{{- toYaml $hops -}}
{{- end -}}

{{- define "xds-relay.volumes" -}}
# As directories, and never by subPath, so that what changes in Kubernetes changes here.
- name: xds-relay-config
  projected:
    sources:
      - configMap: {name: {{ include "xds-relay.fullname" . }}, items: [{key: relay.yaml, path: relay.yaml}]}
      {{- if include "xds-relay.hasRules" . }}
      - configMap: {name: {{ .Values.policy.configMapName | default (printf "%s-rules" (include "xds-relay.fullname" .)) }}, items: [{key: rules.yaml, path: rules.yaml}]}
      {{- end }}
{{- if and .Values.snapshot.enabled (ne (include "xds-relay.kind" .) "StatefulSet") }}
- name: xds-relay-state
  emptyDir: {}
{{- end }}
{{- range include "xds-relay.hops" . | fromYamlArray }}
- name: xds-relay-tls-{{ . }}
  secret: {secretName: {{ (get $.Values.tls .).secretName }}, defaultMode: 0440}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* For charts of Envoys that have this one as a dependency: an init container, and its volumes. */}}
{{- define "xds-relay.sidecar.container" -}}
# Kubernetes starts the next container once startupProbe succeeds, and ends this one last.
restartPolicy: Always
{{ include "xds-relay.container" . }}
{{- end -}}

{{- define "xds-relay.sidecar.volumes" -}}
{{ include "xds-relay.volumes" . }}
- name: xds-relay-socket
  emptyDir: {}
- name: xds-relay-envoy
  configMap: {name: {{ include "xds-relay.fullname" . }}-envoy}
{{- end -}}
