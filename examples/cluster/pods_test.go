package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc/examples/internal/wording"
	"github.com/ipalloc/ipalloc/ipset"
)

const podHeader = "name,cpu_milli,creation_time,deletion_time\n"

func TestPodTraceFaults(t *testing.T) {
	file := write(t, podHeader+"a,1,5,\nb,1,5,4\n")
	status, out, errs := start("-pods", file)
	if want := file + ":3:7: deletion_time is 4: the pod comes at 5 only\n"; status != exitUsage || out != "" || errs != want {
		t.Errorf("status %d, %q, %q\nwant %q", status, out, errs, want)
	}
	// Without a range there are no pods, and nobody looks at the file.
	if status, _, errs := start("-pods", file, "-podpool4", "none", "-podpool6", "none"); status != exitOK {
		t.Errorf("status %d, %q", status, errs)
	}
}

func TestPodPoolTooSmall(t *testing.T) {
	status, _, errs := start("-podpool4", "10.0.0.0/26")
	want := `cluster: pod "shop/app-15" on node "app-02", with 64 other pods: ipset: assign for "host:app-02" in "IPv4": not enough addresses: full; at the peak there are 82 pods (-podpool4, -podpool6)` + "\n"
	if status != exitFailed || errs != want {
		t.Errorf("status %d, %q\nwant %q", status, errs, want)
	}
}

// A trace of pods of one's own has larger pools and blocks.
func TestOwnPods(t *testing.T) {
	var trace strings.Builder
	trace.WriteString(podHeader)
	for i := range 3000 {
		fmt.Fprintf(&trace, "p%d,100,%d,%d\n", i, i*10, i*10+20000)
	}
	status, out, errs := start("-pods", write(t, trace.String()))
	if status != exitOK || errs != "" {
		t.Fatalf("status %d, %s", status, errs)
	}
	for _, want := range []string{
		"3000 created, 3000 deleted; 2000 at once at the peak, 0 at the end",
		"IPv4   10.244.0.0/16      2000 of 65536 addresses held   ",
		"IPv6   fd00:10:244::/64   2000 of 2^64 addresses held    ",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

// A trace without pods is one.
func TestNoPods(t *testing.T) {
	status, out, errs := start("-pods", write(t, podHeader))
	if status != exitOK || !strings.Contains(out, "0 created, 0 deleted; 0 at once at the peak") {
		t.Errorf("status %d, %s\n%s", status, errs, out)
	}
}

// What happens behind the back of the network is a broken promise.
func TestBrokenPods(t *testing.T) {
	cfg, err := parse(nil, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := load(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	p, err := newPodPhase(ctx, cfg, loaded.nodes, loaded.pods)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.runTo(ctx, 40, "early"); err != nil {
		t.Fatal(err)
	}
	e, err := ipset.New(p.store, ipset.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.ReleaseByHandle(ctx, "shop/web-03"); err != nil {
		t.Fatal(err)
	}
	var broken *wording.BrokenError
	if err := p.verify(ctx, "late"); !errors.As(err, &broken) || !strings.HasPrefix(err.Error(), "broken promise, pods late:\n") {
		t.Error(err)
	}
	if err := p.restart(ctx); !errors.As(err, &broken) {
		t.Error(err)
	}
	var out bytes.Buffer
	if err := replay(ctx, cfg, loaded, &out); err != nil {
		t.Error(err)
	}
}
