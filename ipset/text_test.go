package ipset

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// someText returns a text that may be hard to write: empty, quoted, of any bytes.
func someText(r *rand.Rand) string {
	texts := []string{"a", `"`, `"a"`, "\xff\x01", "web-0", "ü", `\`, "host:x", "[]"}
	return texts[r.IntN(len(texts))] + texts[r.IntN(len(texts))]
}

// roundTrip fails unless a value is itself again after JSON.
func roundTrip[V any](t *testing.T, v V) string {
	t.Helper()
	text, err := json.Marshal(v)
	var back V
	if err == nil {
		err = json.Unmarshal(text, &back)
	}
	if err != nil || !reflect.DeepEqual(back, v) {
		t.Errorf("%#v, as %s, comes back as %#v: %v", v, text, back, err)
	}
	return string(text)
}

// TestJSONLosesNothing: attributes, owners, uses, allocations with their holders and pools are themselves again.
func TestJSONLosesNothing(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	attributes := func() alloc.Attributes {
		m := map[string]string{}
		for range r.IntN(3) {
			m[someText(r)] = someText(r)
		}
		a, err := alloc.NewAttributes(m)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	w := newWorld(t, alloc.Config{}, alloc.Pool{Name: "p", Prefix: netip.MustParsePrefix("10.0.0.0/20"), BlockBits: 24, Uses: AllUses(), Cooldown: time.Hour})
	for i := range 300 {
		roundTrip(t, attributes())
		o := alloc.Owner{Kind: alloc.OwnerKind(1 + r.IntN(2)), Name: someText(r)}
		roundTrip(t, o)
		roundTrip(t, alloc.Use(r.IntN(8)))
		a := alloc.AssignIPArgs{Address: netip.AddrFrom4([4]byte{10, 0, byte(i / 100), byte(i)}), Owner: o, Handle: fmt.Sprint(someText(r), i), Attributes: attributes()}
		a.TTL = time.Duration(r.IntN(2)) * time.Hour
		a.Share.Max = 3 * r.IntN(2)
		al, err := w.AssignIP(bg, a)
		if err != nil {
			t.Fatal(err)
		}
		if a.Share.Max > 0 {
			a.Handle += "+"
			if al, err = w.AssignIP(bg, a); err != nil {
				t.Fatal(err)
			}
		}
		roundTrip(t, al)
		// A share is a code of any bytes, but prints as text; texts of the caller print as they are.
		al.Handle, al.Host, al.Attributes = "", alloc.Owner{}, alloc.Attributes{}
		if text := fmt.Sprint(al); strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) || r == utf8.RuneError }) {
			t.Errorf("prints as %q", text)
		}
		if found, err := w.Lookup(bg, a.Address); err != nil || len(found.Handle) == 0 {
			t.Error(err)
		} else if roundTrip(t, found); i%10 == 0 {
			w.releaseHandle(found.Handle)
		}
	}
	for al, err := range w.Allocations(bg, netip.Prefix{}) { // cooling ones too
		if err != nil {
			t.Fatal(err)
		}
		roundTrip(t, al)
	}
	for _, p := range []alloc.Pool{{}, {Name: "p", Prefix: netip.MustParsePrefix("fd00::/64"), BlockBits: 122, Uses: alloc.Workload | alloc.LoadBalancer, Disabled: true, Manual: true, Order: alloc.Random, Seed: 7,
		Index: []string{"tenant"}, Priority: -3, Ranges: []netipx.IPRange{netipx.MustParseIPRange("fd00::1-fd00::9")}, MaxBlocksPerHost: 2, Subnet: true, Cooldown: 90 * time.Minute, Draining: []int{120}}} {
		roundTrip(t, p)
	}
	want := `{"name":"p","prefix":"10.0.0.0/24","uses":["workload"],"cooldown":"1h"}`
	if got := roundTrip(t, alloc.Pool{Name: "p", Prefix: netip.MustParsePrefix("10.0.0.0/24"), Uses: alloc.Workload, Cooldown: time.Hour}); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	tenant, _ := alloc.NewAttributes(map[string]string{"tenant": "acme"})
	if got := fmt.Sprint(tenant, alloc.HostOwner("a"), alloc.Workload|alloc.Tunnel); got != `"tenant"="acme" host:a workload,tunnel` {
		t.Error(got)
	}
}

// AllUses returns every use.
func AllUses() alloc.Use { return alloc.Workload | alloc.Tunnel | alloc.LoadBalancer }

// TestJSONRefusesWhatCannotBe: text that no value writes is refused, and the value stays.
func TestJSONRefusesWhatCannotBe(t *testing.T) {
	for _, c := range []struct {
		into any
		bad  []string
	}{
		{new(alloc.Use), []string{`["none"]`, `7`, `"workload"`}},
		{new(alloc.Owner), []string{`"a"`, `"host:"`, `"host:\"a"`, `7`}},
		{new(alloc.Attributes), []string{`"%%"`, `"AQ=="`, `""`, `{"a":1}`, `[]`}},
		{new(alloc.Allocation), []string{`7`, `{"handle":"\"a"}`, `{"share":"%"}`, `{"share":"AA=="}`, `{"share":"AQBh"}`, `{"host":"x"}`}},
		{new(alloc.Pool), []string{`{"cooldown":"soon"}`, `{"uses":["none"]}`, `{"name":"p","colour":"red"}`, `{"prefix":"10.0.0.1"}`}},
	} {
		for _, text := range c.bad {
			err := json.Unmarshal([]byte(text), c.into)
			var typed *json.UnmarshalTypeError
			if err == nil || !errors.Is(err, ipalloc.ErrInvalid) && !errors.As(err, &typed) && !strings.Contains(err.Error(), "invalid character") {
				t.Errorf("%T of %s: %v", c.into, text, err)
			}
			if !reflect.ValueOf(c.into).Elem().IsZero() {
				t.Errorf("%T of %s: %v", c.into, text, c.into)
			}
		}
	}
	for _, v := range []any{alloc.Owner{Kind: 7, Name: "a"}, alloc.Use(64)} {
		if text, err := json.Marshal(v); !errors.Is(err, ipalloc.ErrInvalid) {
			t.Errorf("%v: %s, %v", v, text, err)
		}
	}
}
