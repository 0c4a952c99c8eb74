// Package servers runs real etcd, PostgreSQL and kube-apiserver processes on this machine, for tests and for programs that measure
// or torture a store.
//
// [StartEtcd], [StartPostgres] and [StartKube] return when the server answers. [NewEtcd], [NewPostgres] and [NewKube] do the same for
// a test. They end the server with the test, log the end of its output if the test failed, and skip the test if the environment says
// so. Every server can be killed, stopped, paused and resumed, and started again on its data at the same address.
//
// # Programs
//
// The programs of etcd and Kubernetes ([KubeProgram]) are built once per user, with the go command on the PATH. They are kept below
// ipalloc in [os.UserCacheDir]. Building kube-apiserver takes some 13 minutes of CPU time. One process builds while others wait, and
// the file appears whole or not at all. PostgreSQL is not built: initdb and postgres are looked for in /usr/lib/postgresql/*/bin,
// where Debian has them, and in the PATH. A superuser's tests run them as the user postgres or nobody, because they refuse to run as
// root.
//
// The environment variables IPALLOC_ETCD and IPALLOC_KUBE name a program to run instead, IPALLOC_POSTGRES a directory of programs.
// The value skip leaves out the tests that need the server: starting it fails with [ErrSkip], as on a machine without PostgreSQL.
//
// # Limits
//
// On Linux no server outlives the process that started it, however that ends. Elsewhere a killed process leaves its servers, two
// processes may build the same program, and Pause is not supported.
//
// Methods may be called from several goroutines.
package servers
