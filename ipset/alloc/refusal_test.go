package alloc

import (
	"errors"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/test/refusal"
)

// Every exported call that can fail refuses in one form, with the sentinel and the field that it promises.
func TestRefusals(t *testing.T) {
	var rows []refusal.Row
	add := func(call, what, op string, is error, field string, err error) {
		rows = append(rows, refusal.Row{Call: call, What: what, Err: err, Is: is, Op: op, Field: field})
	}
	invalid, long := ipalloc.ErrInvalid, map[string]string{strings.Repeat("k", 70_000): "x"}
	_, err := NewAttributes(long)
	add("NewAttributes", "a long key", "check", ipalloc.ErrLimit, "attributes", err)
	_, err = ParseOwner("host")
	add("ParseOwner", "no kind", "parse", invalid, "owner", err)
	add("Owner.Check", "nobody", "check", invalid, "Owner", Owner{}.Check())
	add("Owner.Check", "a NUL byte", "check", invalid, "owner", HostOwner("a\x00").Check())
	add("Share.Check", "one holder", "check", invalid, "Share.Max", Share{Max: 1}.Check())
	add("Share.Check", "a NUL byte", "check", invalid, "sharing key", Share{Max: 2, Key: "\x00"}.Check())

	var (
		o     Owner
		u     Use
		order Order
		attrs Attributes
		al    Allocation
	)
	add("Owner.UnmarshalText", "no kind", "parse", invalid, "owner", o.UnmarshalText([]byte("x")))
	add("Owner.UnmarshalText", "half a quote", "read", invalid, "text", o.UnmarshalText([]byte(`host:"x`)))
	_, err = Owner{Kind: 9, Name: "x"}.MarshalText()
	add("Owner.MarshalText", "of no kind", "write", invalid, "owner", err)
	_, err = Use(128).MarshalJSON()
	add("Use.MarshalJSON", "no use", "write", invalid, "use", err)
	add("Use.UnmarshalJSON", "no list", "read", invalid, "use", u.UnmarshalJSON([]byte("1")))
	_, err = Order(9).MarshalText()
	add("Order.MarshalText", "no order", "write", invalid, "order", err)
	add("Order.UnmarshalText", "no order", "read", invalid, "order", order.UnmarshalText([]byte("x")))
	_, err = (ReasonNotOfNamespace + 1).MarshalText()
	add("Reason.MarshalText", "no reason", "write", invalid, "reason", err)
	add("Reason.UnmarshalText", "no reason", "read", invalid, "reason", new(Reason).UnmarshalText([]byte("x")))
	_, err = (ConfigChanged + 1).MarshalText()
	add("ChangeKind.MarshalText", "no kind", "write", invalid, "kind", err)
	add("ChangeKind.UnmarshalText", "no kind", "read", invalid, "kind", new(ChangeKind).UnmarshalText([]byte("x")))
	_, err = attrs.MarshalJSON()
	add("Attributes.MarshalJSON", "", "", nil, "", err)
	add("Attributes.UnmarshalJSON", "a number", "read", invalid, "attributes", attrs.UnmarshalJSON([]byte("1")))
	_, err = al.MarshalJSON()
	add("Allocation.MarshalJSON", "", "", nil, "", err)
	add("Allocation.UnmarshalJSON", "a number", "read", invalid, "allocation", al.UnmarshalJSON([]byte("1")))
	add("Count.UnmarshalText", "no number", "read", invalid, "count", new(Count).UnmarshalText([]byte("x")))
	_, err = Count{}.MarshalText()
	add("Count.MarshalText", "", "", nil, "", err)
	var p Pool
	_, err = p.MarshalJSON()
	add("Pool.MarshalJSON", "", "", nil, "", err)
	add("Pool.UnmarshalJSON", "no object", "read", invalid, "Pool", p.UnmarshalJSON([]byte("7")))
	add("Pool.UnmarshalJSON", "no time", "read", invalid, "Pool", p.UnmarshalJSON([]byte(`{"cooldown":"soon"}`)))
	_, err = ReservedSet(make([]Reservation, 1))
	add("ReservedSet", "no range", "check", invalid, "Range", err)
	refusal.Check(t, "ipset", rows)
	if !errors.Is(al.UnmarshalJSON([]byte(`{"address":"","share":"AgAH"}`)), invalid) {
		t.Error("half a holder is taken")
	}
}
