package kubestore

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/servers"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

var stormFor = flag.Duration("storm", 6*time.Second, "how long TestStorm kills writers and the API server")

// The environment of a writer of the storm: the URL, the token, and a name that no other writer has.
const writerEnv = "KUBESTORE_TEST_WRITER"

// writer assigns and releases addresses until it is killed, and says what it is about to do and what was done, each in one
// write to standard output: the writers share that pipe, so their lines have one order.
func writer(env string) error {
	part := strings.Fields(env)
	ctx := context.Background()
	config := configOf(&servers.Kube{URL: part[0], Token: part[1]})
	e, err := stormEngine(ctx, config)
	if err != nil {
		return err
	}
	// settled calls f, whose calls have request keys or are idempotent, until its outcome is known.
	settled := func(f func() error) error {
		for {
			err := f()
			if err == nil || !store.Retryable(err) {
				return err
			}
			what := "retry" // which also ends a writer that has lost its parent
			if errors.Is(err, ipalloc.ErrUnknownOutcome) {
				what = "unknown"
			}
			fmt.Println(what, part[2])
		}
	}
	var held []string
	for i := 0; ; i++ {
		handle := fmt.Sprintf("%s-%d", part[2], i)
		fmt.Printf("try %s\n", handle)
		var got netip.Addr
		err := settled(func() error {
			a, err := e.AutoAssign(ctx, alloc.AssignArgs{Owner: alloc.HostOwner("host" + part[2][:1]), Num4: 1,
				Handle: handle, Request: handle})
			if err == nil {
				got = a.V4[0].Address
			}
			return err
		})
		if err != nil {
			return err
		}
		fmt.Printf("got %s %s\n", handle, got)
		if held = append(held, handle); len(held) < 20 {
			continue
		}
		n := rand.IntN(len(held))
		handle = held[n]
		held[n] = held[len(held)-1]
		held = held[:len(held)-1]
		fmt.Printf("release %s\n", handle)
		if err := settled(func() error { _, err := e.ReleaseByHandle(ctx, handle); return err }); err != nil {
			return err
		}
		fmt.Printf("released %s\n", handle)
	}
}

// stormEngine returns an engine on the store of the storm.
func stormEngine(ctx context.Context, config *rest.Config) (*ipset.Engine, error) {
	s, err := Open(ctx, config, "default", "storm", Options{Slots: 32})
	if err != nil {
		return nil, err
	}
	return ipset.New(s, ipset.Options{Retry: ipset.Retry{Attempts: 1000, Base: time.Millisecond, Max: 50 * time.Millisecond}})
}

// storm is what the writers say.
type storm struct {
	mu      sync.Mutex
	held    map[string]netip.Addr // by handle: acknowledged, no release begun
	holder  map[netip.Addr]string // the other way round
	open    map[string]bool       // begun and not acknowledged: whole or not at all
	gone    map[string]bool       // released, acknowledged
	acks    int
	unknown int
}

func (s *storm) line(t *testing.T, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := strings.Fields(text)
	if len(f) < 2 {
		t.Errorf("a writer says %q", text)
		return
	}
	h := f[1]
	switch f[0] {
	case "try":
		s.open[h] = true
	case "got":
		a := netip.MustParseAddr(f[2])
		if other, twice := s.holder[a]; twice {
			t.Errorf("%v was given to %s and to %s", a, other, h)
		}
		delete(s.open, h)
		s.held[h], s.holder[a] = a, h
		s.acks++
	case "release":
		delete(s.holder, s.held[h])
		delete(s.held, h)
		s.open[h] = true
	case "released":
		delete(s.open, h)
		s.gone[h] = true
		s.acks++
	case "unknown":
		s.unknown++
	case "retry":
	default:
		t.Errorf("a writer says %q", text)
	}
}

// Three writers in processes of their own are killed, and the API server is killed and paused, again and again. Nothing is
// assigned twice, nothing acknowledged is lost, and every outcome is settled in the end.
func TestStorm(t *testing.T) {
	server := servers.NewKube(t, servers.KubeOptions{})
	ctx, cancel := context.WithTimeout(t.Context(), guard+*stormFor)
	defer cancel()
	admin := configOf(server)
	admin.Impersonate = rest.ImpersonationConfig{}
	if _, err := Open(ctx, admin, "default", "storm", Options{}); !errors.Is(err, ipalloc.ErrNotFound) || !strings.Contains(err.Error(), "crd.yaml") {
		t.Errorf("without the definition of the resource: %v", err)
	}
	if err := define(ctx, server); err != nil {
		t.Fatal(err)
	}
	e, err := stormEngine(ctx, configOf(server))
	if err != nil {
		t.Fatal(err)
	}
	if err := e.AddPool(ctx, alloc.Pool{Name: "p", Prefix: netip.MustParsePrefix("10.0.0.0/20"), BlockBits: 28}); err != nil {
		t.Fatal(err)
	}
	st := &storm{held: map[string]netip.Addr{}, holder: map[netip.Addr]string{}, open: map[string]bool{}, gone: map[string]bool{}}
	kills, restarts, pauses := st.rage(ctx, t, server)
	st.verify(t, server)
	t.Logf("%d acknowledged operations, %d unknown outcomes; %d writers killed, the API server %d times, paused %d times; %d operations cut short",
		st.acks, st.unknown, kills, restarts, pauses, len(st.open))
	if st.acks < 20 {
		t.Error("the writers did next to nothing")
	}
}

// rage runs the writers, and kills them and the API server, for as long as the flag says.
func (s *storm) rage(ctx context.Context, t *testing.T, server *servers.Kube) (kills, restarts, pauses int) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	group.Go(func() {
		for lines := bufio.NewScanner(r); lines.Scan(); {
			s.line(t, lines.Text())
		}
	})
	running := make([]*exec.Cmd, 3)
	start := func(i, n int) {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %d.%d", writerEnv, server.URL, server.Token, i, n))
		cmd.Stdout, cmd.Stderr = w, os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		running[i] = cmd
	}
	kill := func(i int) {
		_ = running[i].Process.Kill()
		if err := running[i].Wait(); err != nil && running[i].ProcessState.ExitCode() > 0 {
			t.Errorf("writer %d ended by itself: %v", i, err)
		}
	}
	for i := range running {
		start(i, 0)
	}
	end := time.Now().Add(*stormFor)
	for n := 1; time.Now().Before(end) || n < 4; n++ {
		time.Sleep(time.Duration(500+rand.IntN(1000)) * time.Millisecond)
		switch n % 3 {
		case 0:
			restarts++
			server.Kill()
			time.Sleep(100 * time.Millisecond)
			if err := server.Start(ctx); err != nil {
				t.Fatal(err)
			}
		case 1:
			kill(n / 3 % len(running))
			kills++
			start(n/3%len(running), n)
		default:
			pauses++
			if err := errors.Join(server.Pause(), sleep(ctx, time.Second), server.Resume()); err != nil {
				t.Error(err)
			}
		}
	}
	for i := range running {
		kill(i)
	}
	_ = w.Close()
	group.Wait()
	return kills, restarts, pauses
}

// verify compares what the writers said with what the store holds.
func (s *storm) verify(t *testing.T, server *servers.Kube) {
	e, err := stormEngine(limited(t), configOf(server))
	if err != nil {
		t.Fatal(err)
	}
	rep, err := e.Operator().Check(limited(t), nil)
	if err != nil || len(rep.Problems) > 0 {
		t.Errorf("%+v, %v", rep.Problems, err)
	}
	there := make(map[string]netip.Addr)
	for al, err := range e.Allocations(limited(t), netip.Prefix{}) {
		if err != nil {
			t.Fatal(err)
		}
		if _, twice := there[al.Handle]; twice {
			t.Errorf("%s holds two addresses", al.Handle)
		}
		there[al.Handle] = al.Address
	}
	for h, a := range s.held {
		if there[h] != a {
			t.Errorf("%s was given %v, the store says %v", h, a, there[h])
		}
	}
	for h, a := range there {
		if s.gone[h] || s.held[h] != a && !s.open[h] {
			t.Errorf("%s holds %v, which was released or never assigned", h, a)
		}
	}
}

// A copy goes from a store to another kind and back, within the limits of both.
func TestCopy(t *testing.T) {
	ctx := limited(t)
	mem := store.NewMemory()
	e, err := ipset.New(mem, ipset.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.AddPool(ctx, alloc.Pool{Name: "p", Prefix: netip.MustParsePrefix("10.0.0.0/20"), BlockBits: 26}); err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		if _, err := e.AutoAssign(ctx, alloc.AssignArgs{Owner: alloc.HostOwner(fmt.Sprint("host", i%9)), Num4: 3, Handle: fmt.Sprint("pod", i)}); err != nil {
			t.Fatal(err)
		}
	}
	s := openAt(t, newName(), Options{Slots: minSlots})
	back := store.NewMemory()
	for _, step := range []struct{ dst, src store.Store }{{s, mem}, {back, openAt(t, s.name, Options{NoCreate: true})}} {
		rep, err := store.Copy(ctx, step.dst, step.src)
		if err != nil || rep.Written != rep.Records || rep.Records < 200 {
			t.Fatalf("%+v, %v", rep, err)
		}
	}
	values := func(m *store.Memory) (out []string) {
		recs, _, _ := m.List(ctx, store.Range{})
		for _, r := range recs {
			out = append(out, r.Key+"="+r.Value)
		}
		return out
	}
	if a, b := values(mem), values(back); strings.Join(a, "\n") != strings.Join(b, "\n") {
		t.Error("the copy of the copy is not the original")
	}
}
