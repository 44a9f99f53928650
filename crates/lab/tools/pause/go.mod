// The process that holds a Pod's namespaces open. No dependencies.
module etcd-operator.example/lab/tools/pause

go 1.26.0
