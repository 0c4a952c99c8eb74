// Command ipamctl shows and changes what package ipset keeps in a store: which pools there are and
// how full, which host has which block, which handle has which address, and what is wrong.
//
//	ipamctl --store bolt:///var/lib/ipam.db pool list
//	ipamctl --store etcd://10.0.0.1:2379/ipam address show 10.1.2.3
//
// README.md is a walk through all of it. Data goes to standard output, everything else to standard
// error. Exit statuses are those of exit.go.
//
// cli.go has the streams and the flags that all commands share, open.go opens stores, output.go
// prints, change.go runs a change or its dry run; every other file is one group of commands.
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
