{{- define "rookery.name" -}}
{{- $name := .Release.Name -}}
{{- if not (contains "rookery" $name) }}{{ $name = printf "%s-rookery" $name }}{{ end -}}
{{- $name | trunc 50 | trimSuffix "-" -}}
{{- end }}

{{- define "rookery.labels" -}}
{{ include "rookery.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | quote }}
{{- end }}

{{- define "rookery.selector" -}}
app.kubernetes.io/name: rookery
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: server
{{- end }}

{{- define "rookery.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "rookery.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (include "rookery.name" .) }}
{{- end }}

{{- define "rookery.sandboxNamespace" -}}
{{ .Values.sandboxNamespace }}
{{- end }}

{{- define "rookery.podSecret" -}}
{{ .Values.podSecret | default (printf "%s-pods" (include "rookery.name" .)) }}
{{- end }}

{{/* Settings that the chart makes. .Values.settings overrides them. */}}
{{- define "rookery.settings" -}}
{{- $name := include "rookery.name" . -}}
{{- $hosts := list -}}
{{- range $service := list (printf "%s-frontend" $name) (printf "%s-meta" $name) -}}
{{- $hosts = concat $hosts (list $service (printf "%s.%s" $service $.Release.Namespace) (printf "%s.%s.svc" $service $.Release.Namespace) (printf "%s.%s.svc.cluster.local" $service $.Release.Namespace)) -}}
{{- end -}}
{{- $settings := dict
  "dataDir" "/var/lib/rookery/node/data"
  "host" "0.0.0.0" "port" (int .Values.ports.frontend)
  "metaHost" "0.0.0.0" "metaPort" (int .Values.ports.meta)
  "allowedHosts" (concat $hosts .Values.allowedHosts)
  "defaultExecutor" "kubernetes"
  "storage" (dict "urlFile" "/etc/rookery/storage/url")
  "pools" (dict "tenants" .Values.pools.tenants "images" .Values.pools.images)
  "kubernetes" (dict "namespace" (include "rookery.sandboxNamespace" .) "image" (include "rookery.image" .) "secret" (include "rookery.podSecret" .))
-}}
{{- if .Values.kubeconfig.existingSecret }}{{ $_ := set $settings.kubernetes "kubeconfig" "/etc/rookery/kubernetes/kubeconfig" }}{{ end -}}
{{- if .Values.cluster.existingSecret -}}
{{- $_ := set $settings "cluster" (dict "listen" (printf "0.0.0.0:%d" (int .Values.ports.cluster)) "secretFile" "/run/rookery/cluster-secret" "drainMs" (int .Values.cluster.drainMs)) -}}
{{- end -}}
{{- if .Values.auth.insecure -}}
{{- $_ := set $settings "insecure" true -}}
{{- else -}}
{{- $_ := set $settings "enable_func_token_auth" true -}}
{{- $jwt := dict -}}
{{- if .Values.auth.existingSecret }}{{ $_ := set $jwt "secretFile" "/etc/rookery/auth/secret" }}{{ end -}}
{{- range $key := list "jwksUrl" "issuer" "audience" -}}
{{- with index $.Values.auth $key }}{{ $_ := set $jwt $key . }}{{ end -}}
{{- end -}}
{{- $_ := set $settings "jwt" $jwt -}}
{{- end -}}
{{- toYaml (mergeOverwrite $settings (deepCopy .Values.settings)) -}}
{{- end }}

{{/* At installation, rejects values with which the server would fail to start. */}}
{{- define "rookery.check" -}}
{{- if not .Values.storage.existingSecret }}{{ fail "storage.existingSecret is needed: the Secret with the URL of PostgreSQL" }}{{ end -}}
{{- if not .Values.sandboxNamespace }}{{ fail (printf "sandboxNamespace is needed: a namespace for pods of instances, so that the server can reach no Secret of the release; sandboxNamespace=%s accepts that it can" .Release.Namespace) }}{{ end -}}
{{- if and (gt (int .Values.replicas) 1) (not .Values.cluster.existingSecret) }}{{ fail "cluster.existingSecret is needed with more than one replica: the Secret that servers know each other by" }}{{ end -}}
{{- if not (or .Values.auth.insecure .Values.auth.existingSecret .Values.auth.jwksUrl) }}{{ fail "one of auth.existingSecret, auth.jwksUrl and auth.insecure=true is needed: without it anybody could run code in this cluster" }}{{ end -}}
{{- end }}
