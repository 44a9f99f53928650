//! etcd processes, their disks and the network between them, as one value driven by a simulated clock.
