{{/* The relay's configuration: what the mode and the values ask for, and over it what .Values.config says. */}}

{{- define "xds-relay.config" -}}
{{- $config := fromYaml (include "xds-relay.config.chart" .) -}}
{{- include "xds-relay.over" (list $config .Values.config) -}}
{{- toYaml $config -}}
{{- end -}}

{{/* Puts the second mapping over the first, in place. Sprig's merge takes false, 0 and "" for nothing said. */}}
{{- define "xds-relay.over" -}}
{{- $under := index . 0 -}}
{{- range $key, $value := index . 1 -}}
{{- $is := get $under $key -}}
{{- if and (kindIs "map" $value) (kindIs "map" $is) -}}
{{- include "xds-relay.over" (list $is $value) -}}
{{- else -}}
{{- $_ := set $under $key $value -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "xds-relay.config.chart" -}}
apiVersion: xds-relay/v1alpha1
instance: "${env:POD_NAME}"
# A ConfigMap that changes is read again; see "xds-relay.restartChecksum" for the keys that need more.
reload_on_change: true
upstream:
  {{- if ne .Values.mode "sidecar" }}
  node: {id: "${env:POD_NAME}", cluster: {{ include "xds-relay.fullname" . | quote }}}
  {{- end }}
  {{- if .Values.tls.upstream.secretName }}
  tls:
    ca: /var/run/xds-relay/upstream/ca.crt
    cert: /var/run/xds-relay/upstream/tls.crt
    key: /var/run/xds-relay/upstream/tls.key
  {{- end }}
downstream:
  {{- if eq .Values.mode "sidecar" }}
  listen: ["unix:///run/xds-relay/xds.sock"]
  # The relay ends after its Envoy, and so has nobody to send away.
  drain_delay: 0s
  drain: 1s
  {{- else }}
  # IPv4 and IPv6, whichever the pod has.
  listen: [":18000"]
  drain_delay: 5s
  drain: 30s
  # A stream does not move to a new pod by itself.
  max_connection_age: 30m
  {{- if .Values.tls.downstream.secretName }}
  tls:
    cert: /var/run/xds-relay/downstream/tls.crt
    key: /var/run/xds-relay/downstream/tls.key
    client_ca: /var/run/xds-relay/downstream/ca.crt
  {{- end }}
  {{- end }}
{{- if eq .Values.mode "sidecar" }}
groups:
  # Envoy's own node goes up, and nothing is shared.
  profile: sidecar
  {{- if not (include "xds-relay.hasRules" .) }}
  secrets: identity
  {{- end }}
timers:
  # A tier above decides first that a name is missing.
  dne_timeout: 20s
{{- end }}
{{- if include "xds-relay.hasRules" . }}
authz:
  rules_file: /etc/xds-relay/rules.yaml
{{- end }}
cache:
  {{- if .Values.snapshot.enabled }}
  snapshot:
    # Below the volume, which others may write to: the relay makes this one for itself.
    dir: /var/lib/xds-relay/state
  {{- end }}
  {{- if eq .Values.mode "sidecar" }}
  # A control plane that restarts may show less than it has; one proxy has few resources, so that each removal counts.
  mass_removal_guard: {fraction: 0.01, min: 1, within: 15s, hold: 30s}
  {{- end }}
admin:
  # For `kubectl port-forward`, which reaches loopback.
  listen: 127.0.0.1:18001
metrics:
  listen: ":18002"
log:
  format: json
{{- end -}}

{{- define "xds-relay.hasRules" -}}
{{- if or .Values.policy.rules .Values.policy.configMapName }}true{{ end -}}
{{- end -}}

{{/* What the relay would say only once it runs, where the chart's words help more. */}}
{{- define "xds-relay.check" -}}
{{- $config := fromYaml (include "xds-relay.config" .) -}}
{{- $up := $config.upstream -}}
{{- if not $up.address -}}
{{- fail "config.upstream.address: name the control plane, such as dns:///control-plane.control-plane-system.svc:18000" -}}
{{- end -}}
{{- $host := not (regexMatch "^(unix:|files:|(dns:///)?(127\\.|localhost:|\\[::1\\]))|\\$\\{env:" $up.address) -}}
{{- if and $host (not $up.tls) (not $up.insecure) -}}
{{- fail "tls.upstream.secretName: name a Secret with ca.crt, tls.crt and tls.key, or set config.upstream.insecure: true for plaintext" -}}
{{- end -}}
{{- if and (ne .Values.mode "sidecar") (not $config.downstream.tls) (not $config.downstream.insecure) -}}
{{- fail "tls.downstream.secretName: name a Secret with tls.crt, tls.key and ca.crt, or set config.downstream.insecure: true for plaintext" -}}
{{- end -}}
{{- if not (regexMatch "^(|0\\.0\\.0\\.0|\\[::\\]):[0-9]+$" ($config.metrics.listen | toString)) -}}
{{- fail "config.metrics.listen: the kubelet's probes need a port on all addresses, such as :18002" -}}
{{- end -}}
{{- if and .Values.policy.rules .Values.policy.configMapName -}}
{{- fail "policy: give either rules or configMapName" -}}
{{- end -}}
{{- end -}}

{{/* The port of an address. */}}
{{- define "xds-relay.port" -}}
{{- regexFind "[0-9]+$" (toString .) -}}
{{- end -}}

{{- define "xds-relay.port.xds" -}}
{{- include "xds-relay.port" (first (fromYaml (include "xds-relay.config" .)).downstream.listen) -}}
{{- end -}}

{{/* Where clients poll, if they do. */}}
{{- define "xds-relay.port.rest" -}}
{{- $listen := dig "rest" "listen" "" (fromYaml (include "xds-relay.config" .)).downstream -}}
{{- regexFind ":[0-9]+$" $listen | trimPrefix ":" -}}
{{- end -}}

{{- define "xds-relay.port.metrics" -}}
{{- include "xds-relay.port" (fromYaml (include "xds-relay.config" .)).metrics.listen -}}
{{- end -}}

{{/* The keys of the configuration that need a restart: pods are replaced when one of them changes, and only then. */}}
{{- define "xds-relay.restartChecksum" -}}
{{- $config := fromYaml (include "xds-relay.config" .) -}}
{{- $values := list -}}
{{- range $key := compact (.Files.Lines "files/restart-keys.txt") -}}
{{- $at := $config -}}
{{- range splitList "." $key -}}
{{- if kindIs "map" $at }}{{ $at = get $at . }}{{ else }}{{ $at = "" }}{{ end -}}
{{- end -}}
{{- $values = append $values $at -}}
{{- end -}}
{{- toJson $values | sha256sum -}}
{{- end -}}

{{/* A duration, such as 1m30s, in whole seconds, rounded up. */}}
{{- define "xds-relay.seconds" -}}
{{- $begin := toDate "2006-01-02" "2000-01-01" -}}
{{- $end := mustDateModify (printf "+%s" (toString .)) $begin | mustDateModify "+999ms" -}}
{{- sub ($end | unixEpoch) ($begin | unixEpoch) -}}
{{- end -}}

{{/* drain_delay and drain, and 15 s in which the relay writes its snapshot and ends. */}}
{{- define "xds-relay.graceSeconds" -}}
{{- $down := (fromYaml (include "xds-relay.config" .)).downstream -}}
{{- add (include "xds-relay.seconds" $down.drain_delay) (include "xds-relay.seconds" $down.drain) 15 -}}
{{- end -}}
