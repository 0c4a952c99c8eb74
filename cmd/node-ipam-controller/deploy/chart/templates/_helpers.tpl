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

{{- /* Sets in the Deployment of base what the values choose. A value that is not there leaves what base has. */}}
{{- define "deployment" -}}
{{- $v := .root.Values }}
{{- $pod := .object.spec.template }}
{{- $container := first $pod.spec.containers }}
{{- $_ := set .object.spec "replicas" (int $v.replicas) }}
{{- $_ := set $pod.metadata "annotations" (dict "checksum/config" (include "config" .root | sha256sum)) }}
{{- range $key := list "nodeSelector" "tolerations" }}
{{- if not (kindIs "invalid" (index $v $key)) }}{{- $_ := set $pod.spec $key (index $v $key) }}{{- end }}
{{- end }}
{{- with $v.imagePullSecrets }}{{- $_ := set $pod.spec "imagePullSecrets" . }}{{- end }}
{{- if not (kindIs "invalid" $v.resources) }}{{- $_ := set $container "resources" $v.resources }}{{- end }}
{{- $_ := set $container "image" (include "image" $v.image) }}
{{- with $v.image.pullPolicy }}{{- $_ := set $container "imagePullPolicy" . }}{{- end }}
{{- $args := list "-config=/etc/node-ipam-controller/config.yaml" (printf "-http-address=%s:%d" $v.address (int $v.port)) "-log-format=json" }}
{{- $_ := set $container "args" (concat $args $v.args) }}
{{- $_ := set (first $container.ports) "containerPort" (int $v.port) }}
{{- $_ := set (first $container.ports) "hostPort" (int $v.port) }}
{{- end }}

{{- /* An image by its digest, if there is one: a tag may be moved to another image. */}}
{{- define "image" -}}
{{ if get . "digest" }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag }}{{ end }}
{{- end }}
