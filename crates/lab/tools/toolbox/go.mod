// Small probes for tests inside Pods. No dependencies.
module etcd-operator.example/lab/tools/toolbox

go 1.26.0
