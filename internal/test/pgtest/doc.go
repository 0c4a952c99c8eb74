// Package pgtest runs a real PostgreSQL server on a Unix socket, for tests and for programs that measure or torture what talks
// to one.
//
// The programs initdb and postgres are looked for in the directory that the environment variable IPALLOC_POSTGRES names (see
// [Env]), in /usr/lib/postgresql/*/bin, where Debian has them, and in the PATH. If there are none, or no Unix, or the variable
// is the word skip, [Start] fails with [ErrSkip] and [New] skips the test. They refuse to run as root: a superuser's tests run
// them as the user postgres, or else as nobody.
//
// A server can be stopped at once, as if the machine had lost its power but for what the system still writes, and started again
// on the data that it left. On Linux no server outlives the process that started it.
package pgtest
