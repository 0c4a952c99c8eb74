// Package kubetest runs a real kube-apiserver on loopback, with an etcd of its own.
//
// [Start] builds the API server of the pinned [Version] with the go command on the PATH
// if the user's cache has none, which takes some 13 minutes of CPU time. It returns when
// the server is ready. [New] does the same for a test.
//
// The server asks RBAC about everyone but [Server.Token], which is an administrator's.
// It can be killed, paused and started again at the same address on the data of its etcd.
//
// [Program] builds other programs of Kubernetes of that version.
//
// The environment variable IPALLOC_KUBE (see [Env]) set to skip leaves out the tests that
// need an API server; any other value is the path of a kube-apiserver to run instead.
package kubetest
