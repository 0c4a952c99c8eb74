{{- define "labels" -}}
app: node-ipam-controller
app.kubernetes.io/name: node-ipam-controller
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- /* The settings. The lease is in the namespace of the release, where the service account may hold it. */}}
{{- define "config" -}}
{{- $own := dict "allocate-node-cidrs" true "leader-elect-resource-namespace" .Release.Namespace -}}
{{ merge (dict) .Values.config $own | toYaml }}
{{- end }}
