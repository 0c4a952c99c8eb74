// Package etcdstore is an ipset.Store in an etcd cluster: many engines on many machines share the pools of one key space.
package etcdstore
