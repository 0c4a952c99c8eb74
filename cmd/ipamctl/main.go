// Command ipamctl shows and changes the records of package ipset in a store: pools and their use,
// blocks with their hosts, addresses with their handles. It also finds and repairs faults.
//
//	ipamctl --store bolt:///var/lib/ipam.db pool list
//	ipamctl --store etcd://10.0.0.1:2379/ipam address show 10.1.2.3
//
// README.md shows every command in use. Data goes to standard output, everything else to standard
// error. File exit.go has the exit statuses.
//
// File cli.go has the streams and the flags that all commands share. File open.go opens stores,
// output.go prints, and change.go runs a change or its dry run. Every other file is one group of
// commands.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	a := &app{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, getenv: os.Getenv, now: time.Now}
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	status := a.run(ctx, os.Args[1:])
	stop()
	os.Exit(status)
}
