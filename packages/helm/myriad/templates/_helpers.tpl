{{- define "myriad.name" -}}
{{- printf "%s-myriad" .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "myriad.secret" -}}
{{- .Values.existingSecret | default (include "myriad.name" .) -}}
{{- end -}}

{{- define "myriad.selector" -}}
app.kubernetes.io/name: myriad
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "myriad.labels" -}}
{{ include "myriad.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "myriad.configuration" -}}
resp = "0.0.0.0:6379"
cql = "0.0.0.0:9042"
http = "0.0.0.0:8080"
log-format = "json"
requirepass = {{ required "set password, or existingSecret" .Values.password | toString | toRawJson }}
{{- range $name, $value := .Values.options }}
{{ $name }} = {{ $value | toRawJson }}
{{- end }}
{{- end -}}
