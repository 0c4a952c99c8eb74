package hostlocal

import (
	"context"
	"errors"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/faults"
	"github.com/ipalloc/ipalloc/ipset/store"
)

var sentinels = []error{
	ipalloc.ErrInvalid, ipalloc.ErrFull, ipalloc.ErrCooling, ipalloc.ErrOccupied, ipalloc.ErrNotHeld, ipalloc.ErrOutOfRange,
	ipalloc.ErrReserved, ipalloc.ErrVersion, ipalloc.ErrReplaced, ipalloc.ErrExists, ipalloc.ErrNotFound, ipalloc.ErrInUse,
	ipalloc.ErrMismatch, ipalloc.ErrLimit, ipalloc.ErrConflict, ipalloc.ErrUnknownOutcome, ipalloc.ErrCorrupt, ipalloc.ErrClosed,
}

// keeps reports an error that is not of this package and the call, of one line, and of the one sentinel.
func keeps(t *testing.T, call string, err, want error) {
	t.Helper()
	e, ok := err.(*ipalloc.Error)
	if !ok || e.Package != pkg || e.Op != strings.ToLower(call) || strings.Contains(err.Error(), "\n") {
		t.Errorf("%s: %#v", call, err)
		return
	}
	for _, s := range sentinels {
		if errors.Is(err, s) != (s == want) {
			t.Errorf("%s: %v, want %v", call, err, want)
		}
	}
	if want == ipalloc.ErrInvalid && e.Field == "" {
		t.Errorf("%s: %v has no field", call, err)
	}
}

// calls are all methods that return an error, with arguments that can be.
var calls = map[string]func(context.Context, *Engine) error{
	"Add":    func(ctx context.Context, e *Engine) error { _, err := e.Add(ctx, eth0("b")); return err },
	"Del":    func(ctx context.Context, e *Engine) error { _, err := e.Del(ctx, eth0("a")); return err },
	"GC":     func(ctx context.Context, e *Engine) error { _, err := e.GC(ctx, GCArgs{}); return err },
	"Verify": func(ctx context.Context, e *Engine) error { return e.Verify(ctx, eth0("a")) },
	"Remove": func(ctx context.Context, e *Engine) error { return e.Remove(ctx) },
	"Status": func(ctx context.Context, e *Engine) error { return e.Status(ctx) },
	"Check":  func(ctx context.Context, e *Engine) error { return e.Check(ctx) },
	"Export": func(ctx context.Context, e *Engine) error { _, err := e.Export(ctx); return err },
	"EndKey": func(ctx context.Context, e *Engine) error { _, err := e.EndKey(ctx, "vm"); return err },
	"AddKey": func(ctx context.Context, e *Engine) error { _, err := e.AddKey(ctx, "vm", eth0("b")); return err },
	"Import": func(ctx context.Context, e *Engine) error {
		_, err := e.Import(ctx, State{Holdings: []Holding{{Attachment: eth0("c"), Addresses: addrs("10.0.0.5")}}, Cursors: map[int]netip.Addr{0: addrs("10.0.0.5")[0]}})
		return err
	},
}

// TestErrorsOfTheStore: what a store answers is an error of the call, whatever the call and whichever of its calls of the store. A
// method without a row fails the test.
func TestErrorsOfTheStore(t *testing.T) {
	for i, of := 0, reflect.TypeFor[*Engine](); i < of.NumMethod(); i++ {
		m := of.Method(i)
		if n := m.Type.NumOut(); n > 0 && m.Type.Out(n-1) == reflect.TypeFor[error]() && calls[m.Name] == nil {
			t.Errorf("%s has no row", m.Name)
		}
	}
	for name, call := range calls {
		for k, met := 1, true; met; k++ {
			f := faults.NewFaulty(store.NewMemory())
			c := Config{Network: "net", Sets: []RangeSet{subnets("10.0.0.0/24")}, Boot: "b1", Leases: name != "AddKey", Keys: name == "AddKey"}
			w := &world{TB: t, store: f}
			w.open(c)
			w.add(eth0("a"), nil, "10.0.0.2")
			c.Boot = "b2" // so the call purges first
			w.open(c)
			met = false
			n := 0
			f.Script(func(context.Context, faults.Call) faults.Outcome {
				if n++; n == k {
					met = true
					return faults.Fail(ipalloc.ErrClosed)
				}
				return faults.Outcome{}
			})
			err := call(t.Context(), w.Engine)
			f.Script(nil)
			if met {
				keeps(t, name, err, ipalloc.ErrClosed)
			}
		}
	}
}

// TestImpossibleArguments: each is refused with the field, before anything is read.
func TestImpossibleArguments(t *testing.T) {
	f := faults.NewFaulty(store.NewMemory())
	f.Script(func(context.Context, faults.Call) faults.Outcome { return faults.Fail(faults.ErrInjected) })
	good := Config{Network: "net", Sets: []RangeSet{subnets("10.0.0.0/24")}}
	e, err := New(f, good)
	if err != nil {
		t.Fatal(err)
	}
	refuse := func(call string, err error) { t.Helper(); keeps(t, call, err, ipalloc.ErrInvalid) }
	long, ctx := strings.Repeat("n", maxName+1), t.Context()
	for _, name := range []string{"", "a\x00b", long} {
		_, err := New(f, Config{Network: name})
		refuse("New", err)
		who := []Attachment{{name, "eth0"}}
		if name != "" {
			_, err := New(f, Config{Network: "net", Scope: name})
			refuse("New", err)
			who = append(who, Attachment{"a", name})
		}
		for _, who := range who {
			_, err := e.Add(ctx, who)
			refuse("Add", err)
			_, err = e.Del(ctx, who)
			refuse("Del", err)
			refuse("Verify", e.Verify(ctx, who))
			_, err = e.GC(ctx, GCArgs{Valid: []Attachment{eth0("a"), who}})
			refuse("GC", err)
			left, err := e.Import(ctx, State{Holdings: []Holding{{Attachment: who, Addresses: addrs("10.0.0.5")}}})
			if err != nil || len(left) != 1 {
				t.Fatal(left, err)
			}
			refuse("Import", left[0])
		}
	}
	_, err = e.Add(ctx, Attachment{Container: "a"})
	refuse("Add", err)
	for _, a := range []netip.Addr{{}, netip.MustParseAddr("::ffff:10.0.0.2"), netip.MustParseAddr("fe80::1%eth0")} {
		_, err := e.Add(ctx, eth0("a"), a)
		refuse("Add", err)
		left, err := e.Import(ctx, State{Holdings: []Holding{{Attachment: eth0("a"), Addresses: []netip.Addr{a}}}, Cursors: map[int]netip.Addr{0: a}})
		if err != nil || len(left) != 2 {
			t.Fatal(left, err)
		}
		refuse("Import", left[0])
		refuse("Import", left[1])
		r := Range{Subnet: netip.MustParsePrefix("10.0.0.0/24"), Gateway: a}
		if a.IsValid() {
			_, err = Canonical([]RangeSet{{r}})
			refuse("Canonical", err)
			_, err = New(f, Config{Network: "net", Sets: []RangeSet{{r}}})
			refuse("New", err)
		}
	}
	bare, err := New(f, Config{Network: "net"})
	if err != nil {
		t.Fatal(err)
	}
	refuse("Status", bare.Status(ctx))
	_, err = bare.Add(ctx, eth0("a"))
	refuse("Add", err)
	_, err = New(nil, good)
	refuse("New", err)
	for _, spoil := range []func(*Config){func(c *Config) { c.Attempts = -1 }, func(c *Config) { c.Leases = true }, func(c *Config) { c.Boot = long }, func(c *Config) { c.Sets = []RangeSet{{}} }} {
		c := good
		spoil(&c)
		_, err := New(f, c)
		refuse("New", err)
	}
}
