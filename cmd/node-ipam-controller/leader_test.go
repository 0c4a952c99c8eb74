package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/ipalloc/ipalloc/cidrset/nodeipam/controller"
)

// follower is a program that would lead by a lease of the client.
func follower(t *testing.T, client *fake.Clientset, name string) (*program, resourcelock.Interface) {
	o, err := parse(t, "-cluster-cidr", "10.0.0.0/16")
	if err != nil {
		t.Fatal(err)
	}
	c, err := newChooser(o, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	p := &program{options: o, log: slog.New(slog.DiscardHandler), chooser: c}
	p.controller, err = controller.New(controller.Config{Allocator: c.allocator, Source: &nodeSource{client: client}, Writer: &nodeWriter{client: client}})
	if err != nil {
		t.Fatal(err)
	}
	return p, &resourcelock.LeaseLock{LeaseMeta: metav1.ObjectMeta{Namespace: o.leaseNamespace, Name: o.leaseName},
		Client: client.CoordinationV1(), LockConfig: resourcelock.ResourceLockConfig{Identity: name}}
}

func TestALostLeaseEndsTheProgram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		var cut atomic.Bool
		client.PrependReactor("update", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			return cut.Load(), nil, errors.New("no way")
		})
		p, lock := follower(t, client, "one")
		ended := make(chan error, 1)
		go func() { ended <- p.lead(t.Context(), lock) }()
		time.Sleep(time.Minute)
		if !p.controller.Synced() {
			t.Fatal("it does not lead")
		}
		if left, err := p.fence(); err != nil || left > p.options.leaseDuration || left < p.options.leaseDuration-p.options.retryPeriod {
			t.Error(left, err)
		}
		cut.Store(true)
		time.Sleep(p.options.renewDeadline - time.Second)
		if !p.controller.Synced() || p.elector.Load().IsLeader() != true {
			t.Error("it gave up early")
		}
		start := time.Now().Add(time.Second - p.options.renewDeadline)
		if err := <-ended; err == nil || err.Error() != "the lease was lost" {
			t.Error(err)
		}
		if took := time.Since(start); took >= p.options.leaseDuration {
			t.Errorf("it went on for %v, and the lease lasts %v", took, p.options.leaseDuration)
		}
	})
}

// A renewal that gets no answer leaves time for another one.
func TestARenewalEndsBeforeTheDeadline(t *testing.T) {
	p, _ := follower(t, fake.NewClientset(), "one")
	var left time.Duration
	p.config = &rest.Config{Host: "http://cluster", Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		if end, ok := r.Context().Deadline(); ok {
			left = time.Until(end)
		}
		return nil, errors.New("no answer")
	})}
	lock, err := p.lock()
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := lock.Get(t.Context()); err == nil || left <= 0 || left > p.options.renewDeadline/2 {
		t.Errorf("%v, %v before its end", err, left)
	}
}

// roundTrip is an http.RoundTripper.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A renewal counts from when it was sent: the answer may be read by a process that was
// stopped in between, while another one took the lease.
func TestTheFenceCountsFromTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		var slow atomic.Bool
		var sent atomic.Pointer[time.Time] // when the last request was sent that was answered
		client.PrependReactor("update", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			at := time.Now()
			if slow.Load() {
				time.Sleep(9 * time.Second)
			}
			sent.Store(&at)
			return false, nil, nil
		})
		p, lock := follower(t, client, "one")
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- p.lead(ctx, lock) }()
		time.Sleep(time.Minute)
		slow.Store(true)
		refused := 0
		for range 600 {
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			left, err := p.fence()
			since := time.Since(*sent.Load())
			if (err == nil) != (since <= p.options.renewDeadline) || err == nil && left != p.options.leaseDuration-since {
				t.Fatalf("%v after the last renewal was sent: %v left, %v", since, left, err)
			}
			if err != nil {
				refused++
			}
		}
		if refused == 0 {
			t.Error("the fence was never down")
		}
		stop()
		<-ended
	})
}

// The next leader begins when the lease has run out, also after one that was asked to
// stop: its last patch may be under way still.
func TestTheNextLeaderWaitsForTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		first, lock := follower(t, client, "one")
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		go func() { ended <- first.lead(ctx, lock) }()
		time.Sleep(time.Minute)
		if !first.controller.Synced() {
			t.Fatal("it does not lead")
		}
		second, lock := follower(t, client, "two")
		ctx2, stop2 := context.WithCancel(t.Context())
		go func() { ended <- second.lead(ctx2, lock) }()
		time.Sleep(time.Minute)
		if second.controller.Synced() {
			t.Fatal("two lead")
		}
		stop()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		time.Sleep(first.options.leaseDuration - first.options.retryPeriod - time.Second)
		if second.controller.Synced() {
			t.Error("it did not wait for the lease to run out")
		}
		time.Sleep(time.Minute)
		if !second.controller.Synced() {
			t.Error("nobody leads")
		}
		stop2()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// One that is stopped before it leads has done nothing.
func TestStoppedWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		client.PrependReactor("*", "leases", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("no way") })
		p, lock := follower(t, client, "one")
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		if err := p.lead(ctx, lock); !errors.Is(err, context.DeadlineExceeded) || p.controller.Synced() {
			t.Error(err)
		}
	})
}
