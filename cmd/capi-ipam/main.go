// Command capi-ipam gives IPAddressClaims of Cluster API their addresses, from pools that are objects of the API server. Its state
// is in a kubestore of the same API server, so it needs no etcd of its own.
//
//	kubectl apply -f ../../ipset/kubestore/config/crd.yaml -f deploy/
//	capi-ipam -kubeconfig ~/.kube/config -namespace capi-ipam
//
// Any number of replicas may run, without leader election: the store decides which one gives a claim its address, and the others
// find it. A replica may be killed at any step; the next one continues.
//
// The program is a demonstration. README.md says what it does and where to begin reading.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/ipalloc/ipalloc/cmd/internal/version"
	"github.com/ipalloc/ipalloc/ipset/kubestore"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "a kubeconfig `file`; empty in a pod")
	namespace := flag.String("namespace", "capi-ipam", "the `namespace` of the store")
	name := flag.String("store", "capi-ipam", "the `name` of the store")
	show := flag.Bool("version", false, "print the version, and end")
	flag.Parse()
	if *show {
		program, goVersion := version.Of()
		fmt.Printf("capi-ipam %s (%s)\n", program, goVersion)
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *kubeconfig, *namespace, *name); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "capi-ipam:", err)
		os.Exit(1)
	}
}

// run serves claims until ctx ends or the store is of no use any more.
func run(ctx context.Context, kubeconfig, namespace, name string) error {
	var config *rest.Config
	var err error
	if kubeconfig == "" {
		config, err = rest.InClusterConfig()
	} else {
		config, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
	}
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 100, 200
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	s, err := kubestore.Open(ctx, config, namespace, name, kubestore.Options{})
	if err != nil {
		return err
	}
	p, err := newProvider(client, s, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if err != nil {
		return err
	}
	return p.run(ctx)
}
