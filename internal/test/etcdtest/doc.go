// Package etcdtest runs real etcd members on loopback, for tests and for programs
// that measure or torture what talks to etcd.
//
// # Terms
//
// A cluster is one or more members; a member is one etcd process with a data
// directory, a log and three addresses: one for clients, one for the other members,
// and one for health and metrics, which is plain HTTP whatever the others are.
//
// # The binary
//
// Binary builds the etcd server of the pinned [Version] from its module, with the go
// command on the PATH and through the module proxy that the environment names. It is
// built once per user and kept in [os.UserCacheDir], in ipalloc/etcd-<version>/etcd.
// Several processes may ask at once: one builds, the others wait for it, and the file
// appears whole or not at all. etcd asks for Go 1.26.
//
// If the binary can't be had, a test that needs it fails. The environment variable
// IPALLOC_ETCD (see [Env]) changes that: the word skip leaves those tests out, and
// anything else is the path of an etcd to run in place of ours.
//
// # Running
//
// [Start] returns when all members serve; [New] does the same for a test, and has the
// test show the logs when it fails. [Prepare] only chooses addresses, for those who
// put proxies before the members and have to know where to forward to.
//
// Members can be killed (SIGKILL), stopped (SIGTERM), paused (SIGSTOP), resumed, and
// started again on the data they left. Data is on the file system when etcd says so
// unless [Config].NoSync is set.
//
// # Limits
//
// Pause and Resume need a Unix. On Linux no member outlives the process that started
// it, however that ends; elsewhere a process killed by SIGKILL leaves its members.
//
// # Concurrency and restart
//
// All methods may be called at once from several goroutines. Nothing is remembered
// between processes but the binary.
package etcdtest
