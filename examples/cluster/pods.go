package main

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/ipalloc/ipalloc/examples/internal/podnet"
	"github.com/ipalloc/ipalloc/examples/internal/trace"
	"github.com/ipalloc/ipalloc/examples/internal/wording"
	"github.com/ipalloc/ipalloc/internal/addrmap"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// podPhase gives pods their addresses. The store is the record: the network is opened from it.
type podPhase struct {
	cfg    podnet.Config
	peak   int // the number of the event after which most pods are there
	store  *store.Memory
	net    *podnet.Network
	report podReport
}

// podReport is what the summary tells.
type podReport struct {
	counts        podnet.Counts
	atPeak        []byte // utilization
	snapshotBytes int
	checks        int
}

func newPodPhase(ctx context.Context, cfg *config, nodes []trace.Node, pods []trace.Pod) (*podPhase, error) {
	p := &podPhase{cfg: cfg.pods, store: store.NewMemory()}
	p.cfg.Nodes, p.cfg.Events = nodes, trace.Schedule(nodes, pods, cfg.place)
	p.peak, _ = trace.Peak(p.cfg.Events)
	var err error
	p.net, err = podnet.Open(ctx, p.store, p.cfg)
	return p, err
}

// run is the life of the pods: they come and go; at the peak, everything restarts from a snapshot.
func (p *podPhase) run(ctx context.Context) error {
	if err := p.runTo(ctx, p.peak, "at the peak"); err != nil {
		return err
	}
	var atPeak bytes.Buffer
	if err := p.net.Utilization(ctx, &atPeak); err != nil {
		return err
	}
	p.report.atPeak = atPeak.Bytes()
	if err := p.restart(ctx); err != nil {
		return err
	}
	return p.runTo(ctx, len(p.cfg.Events), "at the end")
}

// runTo lets happen what the trace says up to an event, and compares.
func (p *podPhase) runTo(ctx context.Context, event int, when string) error {
	if err := p.net.Run(ctx, event); err != nil {
		return err
	}
	return p.verify(ctx, when)
}

func (p *podPhase) verify(ctx context.Context, when string) error {
	p.report.checks++
	return p.net.Verify(ctx, when)
}

// restart writes a snapshot of the store, forgets the store and the network, and goes on with what
// the snapshot gives back: the same blocks, the same addresses, the same next event.
func (p *podPhase) restart(ctx context.Context) error {
	const when = "after the restart"
	data, err := p.store.MarshalBinary()
	if err != nil {
		return err
	}
	p.report.snapshotBytes = len(data)
	p.report.counts = p.net.Counts()
	next := p.net.Next()
	if p.store, err = store.RestoreMemory(data); err != nil {
		return err
	}
	again, err := p.store.MarshalBinary()
	if err != nil {
		return err
	}
	if p.net, err = podnet.Open(ctx, p.store, p.cfg); err != nil {
		return err
	}
	var found []string
	if !bytes.Equal(data, again) {
		found = append(found, "a second snapshot differs from the first")
	}
	if p.net.Next() != next {
		found = append(found, fmt.Sprintf("the next event is number %d, it was %d", p.net.Next(), next))
	}
	if err := wording.Broken("pods "+when, found); err != nil {
		return err
	}
	return p.verify(ctx, when)
}

// summarizePods writes what came of it, for a person to read. The end is the picture of blocks.
func summarizePods(ctx context.Context, w io.Writer, cfg *config, p *podPhase) error {
	var out bytes.Buffer
	out.WriteByte('\n')
	p.net.Describe(&out, sourceOf(cfg.podFlags.File), cfg.place.String())
	r := &p.report
	r.counts.Add(p.net.Counts())
	fmt.Fprintf(&out, "blocks     %v\n", r.counts)
	fmt.Fprintf(&out, "restart    at the peak, from %s of snapshot: the same state, and it went on from there\n", wording.Count(r.snapshotBytes, "byte"))
	fmt.Fprintf(&out, "verified   %s, from what the pods were told: nobody without, nothing twice, nothing left behind; and Check found nothing\n",
		wording.Count(r.checks, "time"))
	fmt.Fprintf(&out, "\nat the peak\n%s", r.atPeak)
	if err := p.net.End(ctx, &out, addrmap.TextStyle{ASCII: cfg.ascii, Color: cfg.color}); err != nil {
		return err
	}
	_, err := w.Write(out.Bytes())
	return err
}
