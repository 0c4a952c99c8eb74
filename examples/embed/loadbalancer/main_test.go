package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/ipalloc/ipalloc/internal/test/servers"
)

// pool has fewer addresses than there are Services.
var pool = netip.MustParsePrefix("203.0.113.0/28")

const (
	kubeconfigVariable = "LOADBALANCER_TEST_KUBECONFIG"
	services           = 20
)

func TestMain(m *testing.M) {
	if file := os.Getenv(kubeconfigVariable); file != "" { // a replica that the test starts
		fmt.Fprintln(os.Stderr, run(context.Background(), file, "default", pool, 20*time.Millisecond, 100*time.Millisecond))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// Two replicas that are killed again and again serve Services that come and go: no two Services that
// exist at the same time have one address, an address that a Service was told stays, and in the end
// as many Services have an address as there are addresses.
func TestReplicasAreKilled(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), servers.StartLimit)
	defer cancel()
	server, err := servers.StartKube(ctx, servers.KubeOptions{})
	if errors.Is(err, servers.ErrSkip) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	if err := server.Define(ctx, "../../../ipset/kubestore/config/crd.yaml", "/apis/store.ipalloc.dev/v1/namespaces/default/storeobjects"); err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := server.Kubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	replicas := []*exec.Cmd{start(t, kubeconfig), start(t, kubeconfig)}
	told := map[string]string{} // by UID
	exists := map[int]bool{}
	for round := range 60 {
		for range 3 {
			toggle(ctx, t, server, exists, rand.IntN(services))
		}
		if round%4 == 0 {
			i := rand.IntN(len(replicas))
			_ = replicas[i].Process.Kill()
			_ = replicas[i].Wait()
			replicas[i] = start(t, kubeconfig)
		}
		audit(ctx, t, server, told)
		if t.Failed() {
			return
		}
	}
	for i := range services {
		if !exists[i] {
			toggle(ctx, t, server, exists, i)
		}
	}
	for served := 0; served < 1<<(32-pool.Bits()); { // addresses of Services that are gone come back after the grace period
		if served = audit(ctx, t, server, told); t.Failed() || ctx.Err() != nil {
			t.Fatalf("%d Services have an address", served)
		}
	}
}

// start starts a replica that the end of the test kills.
func start(t *testing.T, kubeconfig string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), kubeconfigVariable+"="+kubeconfig)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s", &errs)
		}
	})
	return cmd
}

// toggle creates a Service, or deletes it if it exists.
func toggle(ctx context.Context, t *testing.T, server *servers.Kube, exists map[int]bool, i int) {
	t.Helper()
	const path = "/api/v1/namespaces/default/services"
	method, url, body := "DELETE", fmt.Sprintf("%s/s%d", path, i), ""
	if !exists[i] {
		method, url = "POST", path
		body = fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: s%d}\nspec: {type: LoadBalancer, allocateLoadBalancerNodePorts: false, ports: [{port: 80}]}\n", i)
	}
	if _, err := server.Request(ctx, method, url, body); err != nil {
		t.Fatal(err)
	}
	exists[i] = !exists[i]
}

// audit compares the status of all Services, and returns how many have an address.
func audit(ctx context.Context, t *testing.T, server *servers.Kube, told map[string]string) (served int) {
	t.Helper()
	text, err := server.Request(ctx, "GET", "/api/v1/services", "")
	if err != nil {
		t.Fatal(err)
	}
	var list corev1.ServiceList
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		t.Fatal(err)
	}
	holder := map[string]string{}
	for _, s := range list.Items {
		if len(s.Status.LoadBalancer.Ingress) == 0 {
			if was := told[string(s.UID)]; was != "" {
				t.Errorf("%s has lost %s", s.Name, was)
			}
			continue
		}
		ip := s.Status.LoadBalancer.Ingress[0].IP
		if other := holder[ip]; other != "" || !pool.Contains(netip.MustParseAddr(ip)) {
			t.Errorf("%s has %s, and so has %q", s.Name, ip, other)
		}
		if was := told[string(s.UID)]; was != "" && was != ip {
			t.Errorf("%s has %s, and was told %s", s.Name, ip, was)
		}
		holder[ip], told[string(s.UID)] = s.Name, ip
		served++
	}
	return served
}
