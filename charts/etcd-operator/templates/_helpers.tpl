{{/* Name of the chart, or what replaces it. */}}
{{- define "etcd-operator.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* Name that all objects begin with. A release called etcd-operator gives plain "etcd-operator". */}}
{{- define "etcd-operator.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* A Service name has room for 63 characters, suffix included. */}}
{{- define "etcd-operator.metricsName" -}}
{{- printf "%s-metrics" (include "etcd-operator.fullname" . | trunc 55 | trimSuffix "-") }}
{{- end }}

{{- define "etcd-operator.selectorLabels" -}}
app.kubernetes.io/name: {{ include "etcd-operator.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "etcd-operator.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "etcd-operator.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* The account that gets the ClusterRole. Falling back to "default" would hand it to every Pod of the namespace. */}}
{{- define "etcd-operator.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "etcd-operator.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- required "serviceAccount.name is required when serviceAccount.create is false" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{/* The operator's image, for its own container and for OPERATOR_IMAGE: the two must never differ. */}}
{{- define "etcd-operator.image" -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}

{{/* Who protects /metrics: "manager", a "sidecar" if an image is named for it, or nobody. */}}
{{- define "etcd-operator.metricsProtection" -}}
{{- if and .Values.kubeRbacProxy.enabled .Values.kubeRbacProxy.image.repository }}sidecar
{{- else if .Values.kubeRbacProxy.enabled }}manager
{{- end }}
{{- if and (.Values.metrics.tls).secretName (not .Values.kubeRbacProxy.enabled) }}
{{- fail "metrics.tls.secretName needs kubeRbacProxy.enabled: without it /metrics is plain HTTP" }}
{{- end }}
{{- if and (.Values.metrics.tls).secretName .Values.kubeRbacProxy.image.repository }}
{{- fail "metrics.tls.secretName is for the operator's own HTTPS: leave kubeRbacProxy.image.repository empty" }}
{{- end }}
{{- end }}

{{/* manager.watchNamespaces as one comma-separated string; empty means all. */}}
{{- define "etcd-operator.watchNamespaces" -}}
{{- if kindIs "string" .Values.manager.watchNamespaces }}
{{- .Values.manager.watchNamespaces | trim }}
{{- else }}
{{- join "," .Values.manager.watchNamespaces }}
{{- end }}
{{- end }}
