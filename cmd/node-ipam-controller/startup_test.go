package main

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// startupFailures are the answers that tell a client to ask again, or that a network gives.
var startupFailures = []failure{status(http.StatusForbidden), status(http.StatusTooManyRequests),
	status(http.StatusInternalServerError), status(http.StatusServiceUnavailable), cut, late}

// A request of the start that fails once ends no program, whichever request it is and however it
// fails: the same run serves the waiting node. A program that ends costs the lease of its
// predecessor, and a new leader starts just when an API server does.
func TestStartupRequestsEndNoProgram(t *testing.T) {
	handlers := utilruntime.ErrorHandlers
	utilruntime.ErrorHandlers = nil // one of them sleeps until a time that it keeps from bubble to bubble
	defer func() { utilruntime.ErrorHandlers = handlers }()
	for name, args := range map[string][]string{
		"range":              {"-cluster-cidr", "10.0.0.0/16"},
		"range with service": {"-cluster-cidr", "10.0.0.0/16", "-service-cluster-ip-range", "10.0.0.0/24"},
		"labels":             {"-cidr-allocator-type", multiCIDRRangeAllocator},
	} {
		t.Run(name, func(t *testing.T) {
			kinds := startUp(t, args, func(string, int) failure { return "" })
			for _, need := range []string{"list servicecidrs", "list nodes", "create leases"} {
				if kinds[need] == 0 {
					t.Errorf("no %s in %v", need, kinds)
				}
			}
			for kind, count := range kinds {
				for k := 1; k <= min(count, 3); k++ {
					for _, f := range startupFailures {
						startUp(t, args, func(of string, n int) failure {
							if of == kind && n == k {
								return f
							}
							return ""
						})
						if t.Failed() {
							t.Fatalf("%q, number %d, %s", kind, k, f)
						}
					}
				}
			}
		})
	}
}

// startUp runs one program until it has served a node, and returns the requests of the start by
// their kind.
func startUp(t *testing.T, args []string, fails func(string, int) failure) (kinds map[string]int) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{apiServer: &apiServer{t: t, objects: map[string]map[string]any{}, changed: make(chan struct{})}, calls: map[string]int{}, fails: fails}
		c.serviceCIDR("kubernetes", "10.0.0.0/24")
		c.clusterCIDR("all", clusterSpec("10.0.0.0/16", ""))
		c.node("n", nil)
		o, err := parseOptions(append([]string{"-allocate-node-cidrs", "-http-address", ""}, args...), io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		var log output
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		ended := make(chan error, 1)
		go func() { ended <- work(ctx, c.program(o, slog.New(slog.NewTextHandler(&log, nil)))) }()
		for start := time.Now(); c.cidrs("n") == "" && time.Since(start) < 5*time.Minute; time.Sleep(100 * time.Millisecond) {
		}
		if got := c.cidrs("n"); got != "10.0.1.0/24" {
			t.Errorf("the node has %q", got)
		}
		c.counting.Lock()
		kinds = c.calls
		c.counting.Unlock()
		select {
		case err := <-ended:
			t.Errorf("the program ended: %v", err)
		default:
			stop()
			<-ended
		}
		time.Sleep(time.Minute) // for the request that is carried out late
		if t.Failed() {
			t.Log(log.String())
		}
	})
	return kinds
}
