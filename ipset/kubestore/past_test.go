package kubestore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/servers"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// setBack stops an API server with its etcd, changes the data, and starts both. The stores of other tests go back too.
func setBack(t *testing.T, server *servers.Kube, change func(data string) error) {
	t.Helper()
	server.Kill()
	c := server.Etcd
	m := c.Members()[0]
	m.Kill()
	if err := change(m.DataDir()); err != nil {
		t.Fatal(err)
	}
	if err := c.Start(limited(t)); err != nil {
		t.Fatal(err)
	}
	if err := server.Start(limited(t)); err != nil {
		t.Fatal(err)
	}
}

// again repeats a call for as long as its error says that this can help.
func again(f func() error) error {
	for {
		if err := f(); !store.Retryable(err) {
			return err
		}
	}
}

// The cluster's etcd is set back, and another process commits as often as commits were lost, or more often than the log has
// slots. A process that knows the lost ones gets ipalloc.ErrReplaced from whatever it does first, assigns nothing twice, and puts
// nothing in the place of what the other did.
func TestSetBackUnderAnotherWriter(t *testing.T) {
	server := sharedServer(t)
	engineOn := func(name string) (*Store, *ipset.Engine) {
		s, err := Open(limited(t), configOf(server), "default", name, Options{Slots: 8})
		if err != nil {
			t.Fatal(err)
		}
		e, err := ipset.New(s, ipset.Options{})
		if err != nil {
			t.Fatal(err)
		}
		err = e.AddPool(limited(t), alloc.Pool{Name: "p", Prefix: netip.MustParsePrefix("10.0.0.0/24")})
		if err != nil && !errors.Is(err, ipalloc.ErrExists) {
			t.Fatal(err)
		}
		return s, e
	}
	assign := func(e *ipset.Engine, handle string) (netip.Addr, error) {
		got, err := e.Assign(limited(t), alloc.HostOwner("h"), handle)
		return got.Address, err
	}
	firsts := map[string]func(s *Store, e *ipset.Engine) error{
		"assign": func(_ *Store, e *ipset.Engine) error { _, err := assign(e, "two"); return err },
		"commit": func(s *Store, _ *ipset.Engine) error {
			_, err := s.Commit(limited(t), []store.Op{put("x", "", store.AnyRevision)})
			return err
		},
		"list": func(s *Store, _ *ipset.Engine) error { _, _, err := s.List(limited(t), store.Range{}); return err },
		"watch": func(s *Store, _ *ipset.Engine) (err error) {
			ctx, cancel := context.WithCancel(limited(t))
			defer cancel()
			for _, err = range s.Watch(ctx, s.rep.rev, "") {
				cancel()
			}
			return err
		},
		"snapshot": func(s *Store, _ *ipset.Engine) error {
			if err := s.snapshot(limited(t)); err != nil { // it is due, unless others wrote one since
				return err
			}
			_, err := s.Get(limited(t), nil, "x")
			return err
		},
	}
	type process struct {
		s *Store
		e *ipset.Engine
	}
	base, stale := newName(), make(map[string]process)
	lost := make(map[string]netip.Addr)
	for _, commits := range []int{1, 20} {
		for name := range firsts {
			name := fmt.Sprint(base, "-", name, "-", commits)
			s, e := engineOn(name)
			a, err := assign(e, "one")
			if err != nil {
				t.Fatal(err)
			}
			stale[name], lost[name] = process{s, e}, a
		}
	}
	copied := filepath.Join(t.TempDir(), "copy")
	setBack(t, server, func(data string) error { return os.CopyFS(copied, os.DirFS(data)) })
	for name, p := range stale { // this is what will be lost
		for i := 0; i < p.s.slots/2 && strings.HasPrefix(name, base+"-snapshot"); i++ {
			if err := again(func() error {
				_, err := p.s.Commit(limited(t), []store.Op{put("lost", "", store.AnyRevision)})
				return err
			}); err != nil {
				t.Fatal(err)
			}
		}
		p.s.settleSnapshot()
		if err := again(func() error { _, err := p.e.ReleaseByHandle(limited(t), "one"); return err }); err != nil {
			t.Fatal(err)
		}
	}
	setBack(t, server, func(data string) error {
		return errors.Join(os.RemoveAll(data), os.CopyFS(data, os.DirFS(copied)))
	})
	for _, commits := range []int{1, 20} {
		for first, do := range firsts {
			name := fmt.Sprint(base, "-", first, "-", commits)
			_, e := engineOn(name)
			held := map[netip.Addr]string{lost[name]: "one"}
			for i := range commits {
				a, err := assign(e, fmt.Sprint("b", i))
				if err != nil {
					t.Fatal(err)
				}
				held[a] = fmt.Sprint("b", i)
			}
			p := stale[name]
			if err := again(func() error { return do(p.s, p.e) }); !errors.Is(err, ipalloc.ErrReplaced) || errors.Is(err, ipalloc.ErrUnknownOutcome) {
				t.Errorf("%s: %v", name, err)
			}
			_, e = engineOn(name)
			for al, err := range e.Allocations(limited(t), netip.Prefix{}) {
				if err != nil || held[al.Address] != al.Handle {
					t.Errorf("%s: %v of %q, %v", name, al.Address, al.Handle, err)
				}
				delete(held, al.Address)
			}
			if len(held) > 0 {
				t.Errorf("%s: lost %v", name, held)
			}
		}
	}
}

// hold has the next request of a method to something else than the log wait, and then gives it a fault. held is sent to when it waits.
func (f *faults) hold(method string, then fault) (held, pass chan struct{}) {
	return f.holdIf(func(r *http.Request) bool { return r.Method == method && !strings.Contains(r.URL.Path, ".log.") }, then)
}

func (f *faults) holdIf(match func(*http.Request) bool, then fault) (held, pass chan struct{}) {
	held, pass = make(chan struct{}), make(chan struct{})
	met := false
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = func(_ int, r *http.Request) fault {
		if met || !match(r) {
			return none
		}
		met = true
		f.mu.Unlock() // others, also repetitions of this one, go on
		held <- struct{}{}
		<-pass
		f.mu.Lock()
		return then
	}
	return held, pass
}

// The cluster's etcd is set back while a process writes a snapshot, and the request that names or deletes parts is lost. It is not
// sent again: the head would name parts that are lost, or one that it names would be deleted. A third process verifies its past
// across the set-back, and must notice: its next request would be a write.
func TestSetBackUnderASnapshot(t *testing.T) {
	server := sharedServer(t)
	type process struct {
		*Store
		faults
		want map[string]string
	}
	var passes []chan struct{}
	all := map[string]*process{http.MethodPut: {}, http.MethodDelete: {}} // by the method of the request
	for _, p := range all {
		config := configOf(server)
		p.use(config)
		var err error
		if p.Store, err = Open(limited(t), config, "default", newName(), Options{Slots: minSlots}); err != nil {
			t.Fatal(err)
		}
		p.want = work(t, p.Store, minSlots)
		p.settleSnapshot()
	}
	var verifier process
	config := configOf(server)
	verifier.use(config)
	var err error
	if verifier.Store, err = Open(limited(t), config, "default", newName(), Options{Slots: minSlots}); err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), "copy")
	setBack(t, server, func(data string) error { return os.CopyFS(copied, os.DirFS(data)) })
	if _, err := verifier.Commit(limited(t), []store.Op{put("lost", "", store.AnyRevision)}); err != nil {
		t.Fatal(err)
	}
	verifying, verify := verifier.holdIf(func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/"+verifier.name) }, none)
	passes = append(passes, verify)
	verified := make(chan error)
	go func() { verified <- verifier.verify(limited(t)) }()
	<-verifying
	for method, p := range all { // this is what will be lost
		held, pass := p.faults.hold(method, unsent)
		passes = append(passes, pass)
		for range minSlots / 2 {
			if _, err := p.Commit(limited(t), []store.Op{put("lost", "", store.AnyRevision)}); err != nil {
				t.Fatal(err)
			}
		}
		<-held
	}
	setBack(t, server, func(data string) error {
		return errors.Join(os.RemoveAll(data), os.CopyFS(data, os.DirFS(copied)))
	})
	for _, pass := range passes {
		close(pass)
	}
	if err := <-verified; !errors.Is(err, ipalloc.ErrReplaced) {
		t.Errorf("verified beside a set-back: %v", err)
	}
	for method, p := range all {
		p.settleSnapshot()
		if _, err := p.Get(limited(t), nil, "chain"); !errors.Is(err, ipalloc.ErrReplaced) {
			t.Errorf("%s: %v", method, err)
		}
		if s, err := Open(limited(t), configOf(server), "default", p.name, Options{}); err != nil {
			t.Errorf("%s: %v", method, err)
		} else if got := contents(t, s); !maps.Equal(got, p.want) {
			t.Errorf("%s: %v, want %v", method, got, p.want)
		}
	}
}

// A cluster lost the last snapshot, so a commit waits for room in the log. While it waits the cluster's etcd is set back further, and loses
// commits. The slot that the commit is for has the same resource version before and after. The process verifies its past once more before
// it writes: the commit fails and is not made.
func TestSetBackUnderACommitThatWaitsForRoom(t *testing.T) {
	server := servers.NewKube(t, servers.KubeOptions{})
	if err := define(limited(t), server); err != nil {
		t.Fatal(err)
	}
	p, err := Open(limited(t), configOf(server), "default", "p", Options{Slots: minSlots})
	if err != nil {
		t.Fatal(err)
	}
	commit := func(key string) error {
		_, err := p.Commit(limited(t), []store.Op{put(key, "", store.AnyRevision)})
		return err
	}
	want := work(t, p, minSlots/2)
	p.settleSnapshot()
	slow := &compaction{done: make(chan struct{})} // writes no snapshot until the test says so
	p.mu.Lock()
	if p.snapped != p.rep.seq {
		t.Errorf("the snapshot has commit object %d, the last is %d", p.snapped, p.rep.seq)
	}
	p.compacting = slow
	p.mu.Unlock()
	if err := commit("kept"); err != nil {
		t.Fatal(err)
	}
	want["kept"] = ""
	copied := filepath.Join(t.TempDir(), "copy")
	setBack(t, server, func(data string) error { return os.CopyFS(copied, os.DirFS(data)) })
	for range minSlots - 1 { // the log is full then
		if err := commit("lost"); err != nil {
			t.Fatal(err)
		}
	}
	written := func() {
		p.mu.Lock()
		p.snapped = p.rep.seq
		p.mu.Unlock()
	}
	written() // the snapshot that the cluster lost
	p.client.answered(time.Now(), p.client.last.Load(), false)
	committed := make(chan error)
	go func() { committed <- commit("late") }()
	select {
	case slow.done <- struct{}{}: // the commit receives it when it waits, and still finds no room
	case err := <-committed:
		t.Fatalf("committed in a full log: %v", err)
	}
	setBack(t, server, func(data string) error {
		return errors.Join(os.RemoveAll(data), os.CopyFS(data, os.DirFS(copied)))
	})
	written()
	close(slow.done)
	if err := <-committed; !errors.Is(err, ipalloc.ErrReplaced) || errors.Is(err, ipalloc.ErrUnknownOutcome) {
		t.Errorf("committed beside a set-back: %v", err)
	}
	if s, err := Open(limited(t), configOf(server), "default", "p", Options{}); err != nil {
		t.Error(err)
	} else if got := contents(t, s); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// The cluster's etcd is set back to a moment after the last commit: it loses a part of a snapshot that the head is about to name, or
// a finished snapshot with its name in the head. No process ends, and no record is lost when the log goes round.
func TestSetBackLosesASnapshotAlone(t *testing.T) {
	server := sharedServer(t)
	copied := filepath.Join(t.TempDir(), "copy")
	var f faults
	config := configOf(server)
	f.use(config)
	p, err := Open(limited(t), config, "default", newName(), Options{Slots: minSlots})
	if err != nil {
		t.Fatal(err)
	}
	held, pass := f.hold(http.MethodPost, none)
	want := work(t, p, minSlots/2) // the last commit begins a snapshot, which has one part
	<-held
	setBack(t, server, func(data string) error { return os.CopyFS(copied, os.DirFS(data)) })
	named, name := f.hold(http.MethodPut, none)
	close(pass)
	for waiting := true; waiting; { // the request may have been given up meanwhile, and the snapshot with it
		select {
		case <-named:
			waiting = false
		case <-time.After(10 * time.Millisecond):
			p.mu.Lock()
			p.compact()
			p.mu.Unlock()
		}
	}
	back := func(data string) error { return errors.Join(os.RemoveAll(data), os.CopyFS(data, os.DirFS(copied))) }
	check := func(when string) {
		t.Helper()
		if _, err := p.Get(limited(t), nil, "chain"); err != nil {
			t.Errorf("%s: %v", when, err)
		}
		if s, err := Open(limited(t), configOf(server), "default", p.name, Options{}); err != nil {
			t.Errorf("%s: %v", when, err)
		} else if got := contents(t, s); !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	setBack(t, server, back)
	close(name)
	for err := errLost; err != nil; {
		p.mu.Lock()
		c := p.compact()
		p.mu.Unlock()
		<-c.done
		err = c.err
	}
	check("a part was lost before the head named it")
	setBack(t, server, back)
	for i := range minSlots { // over all that the log still has
		if err := again(func() error {
			_, err := p.Commit(limited(t), []store.Op{put("later", fmt.Sprint(i), store.AnyRevision)})
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	want["later"] = fmt.Sprint(minSlots - 1)
	p.settleSnapshot()
	check("a snapshot was lost")
}

// replicaOf returns a replica after commits, each of a key of one letter with its value.
func replicaOf(t *testing.T, values ...string) *replica {
	t.Helper()
	r := newReplica(minSlots)
	for _, kv := range values {
		rev, err := r.mem.Commit(t.Context(), []store.Op{put(kv[:1], kv[1:], store.AnyRevision)})
		if err != nil {
			t.Fatal(err)
		}
		r.rev = rev
	}
	return r
}

// A replica that is read anew continues one in memory only if both have the same records at the revisions that both know.
func TestContinues(t *testing.T) {
	old := replicaOf(t, "a1", "b1", "a2")
	for _, tt := range []struct {
		later []string
		ok    bool
	}{
		{[]string{"a1", "b1", "a2"}, true},
		{[]string{"a1", "b1", "a2", "b2", "c1"}, true},
		{[]string{"a1", "b1", "c1"}, false},             // another record at revision 3
		{[]string{"a1", "b1", "a3", "c1"}, false},       // another value
		{[]string{"a1", "b1", "b2", "c1", "d1"}, false}, // a is older than seen
	} {
		if err := old.continues(replicaOf(t, tt.later...)); (err == nil) != tt.ok || err != nil && !errors.Is(err, ipalloc.ErrReplaced) {
			t.Errorf("%v: %v", tt.later, err)
		}
	}
}

// A replica that was read while other calls made commits is older than the one in memory. That is no other past.
func TestReplaceByAnOlderOne(t *testing.T) {
	for _, tt := range []struct {
		old, later []string
		ok         bool
	}{
		{[]string{"a1", "b1"}, []string{"a1"}, true},
		{[]string{"a1", "b1", "a2"}, []string{"a1", "b1"}, true}, // a has another content since
		{[]string{"a1", "b1", "a2"}, []string{"a1", "b2"}, false},
		{[]string{"a1", "b1"}, []string{"a1", "b1"}, true},
	} {
		s := &Store{name: "s", slots: minSlots, breakNow: func() {}, rep: replicaOf(t, tt.old...)}
		s.rep.seq++
		if err := s.replace(replicaOf(t, tt.later...)); (err == nil) != tt.ok || err != nil && !errors.Is(err, ipalloc.ErrReplaced) {
			t.Errorf("%v after %v: %v", tt.later, tt.old, err)
		} else if s.rep.rev != uint64(len(tt.old)) {
			t.Errorf("%v after %v: the replica has revision %d", tt.later, tt.old, s.rep.rev)
		}
	}
}

// The time since the last answer is monotonic, so that a clock that steps back hides no silence, and an error ends the calm.
func TestCalm(t *testing.T) {
	c := &client{quiet: time.Minute}
	if !strings.Contains(start.String(), " m=") || c.calm() {
		t.Errorf("calm before any answer, since %v", start)
	}
	if c.settle(); !c.calm() {
		t.Error("not calm after an answer")
	}
	if last := c.last.Load(); time.Duration(last) > time.Since(start) {
		t.Errorf("the last answer came at %v", last)
	}
	c.answered(time.Now(), c.last.Load(), false)
	if c.calm() {
		t.Error("calm after an error")
	}
	c.settle()
	c.answered(time.Now().Add(2*c.quiet), c.last.Load(), true)
	if before := c.last.Load(); time.Duration(before) > time.Since(start) {
		t.Error("a request after a silence continued the sequence")
	}
}
