//go:build e2e

package main

import (
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, users: ["system:serviceaccount:capi-ipam:capi-ipam"]}
- {level: None}
`

// audited returns the requests of the program so far by verb and resource, watches left out.
func audited(t *testing.T, log string) map[string]int {
	t.Helper()
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for line := range strings.Lines(string(text)) {
		var e struct {
			Verb      string
			ObjectRef struct{ Resource, Subresource string }
		}
		if json.Unmarshal([]byte(line), &e) != nil {
			continue // the last line may be half written
		}
		if e.Verb != "watch" {
			counts[strings.TrimSpace(e.Verb+" "+e.ObjectRef.Resource+" "+e.ObjectRef.Subresource)]++
		}
	}
	return counts
}

// 200 claims cost at most 4 requests each, those of the store and of the pool's status included, and nothing once they are ready,
// also after a restart. Three are the provider's own.
func TestRequests(t *testing.T) {
	dir := t.TempDir()
	policy, log := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	c := begin(t, "--audit-policy-file="+policy, "--audit-log-path="+log)
	c.start(0)
	c.request(http.MethodPost, poolsPath, "apiVersion: ipam.ipalloc.dev/v1alpha1\nkind: IPPool\nmetadata: {name: machines}\n"+
		"spec: {addresses: [10.20.0.2-10.20.0.254], prefix: 24, gateway: 10.20.0.1}\n")
	c.claim(1, 1)
	c.settled("a first claim", func(v view) bool { return v.refs == 1 })
	before, begun := audited(t, log), time.Now()
	const n = 200
	c.claim(2, n+1)
	c.settled("200 claims", func(v view) bool { return v.refs == n+1 })
	took := time.Since(begun)
	counts := difference(audited(t, log), before)
	total := 0
	for _, v := range counts {
		total += v
	}
	t.Logf("%d claims in %.1f s, %.2f requests a claim: %v", n, took.Seconds(), float64(total)/n, counts)
	if total > 4*n {
		t.Errorf("%d requests for %d claims", total, n)
	}

	before = audited(t, log)
	c.kill(0)
	c.start(0)
	c.claim(n+2, n+2) // served after all that was there
	c.settled("a claim after the restart", func(v view) bool { return v.refs == n+2 })
	counts = difference(audited(t, log), before)
	t.Logf("a restart and a claim: %v", counts)
	writes := 0
	for what, v := range counts {
		if !strings.HasPrefix(what, "get ") && !strings.HasPrefix(what, "list ") {
			writes += v
		}
	}
	if writes > 12 {
		t.Errorf("%d writes for one claim after a restart", writes)
	}
}

func difference(now, before map[string]int) map[string]int {
	d := map[string]int{}
	for _, what := range slices.Sorted(maps.Keys(now)) {
		if n := now[what] - before[what]; n > 0 {
			d[what] = n
		}
	}
	return d
}
