// Package synctest is testing/synctest of Go 1.25, also for Go 1.24 with
// GOEXPERIMENT=synctest: tests on a made-up clock run on the oldest Go that go.mod
// admits, too. Such a test file has the build constraint
// go1.25 || goexperiment.synctest.
package synctest
