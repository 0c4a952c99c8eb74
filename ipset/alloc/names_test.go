package alloc

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/ipalloc/ipalloc"
)

// name is what a value with a name has.
type name interface {
	~uint8
	fmt.Stringer
	encoding.TextMarshaler
}

// roundTrip writes each value, from 0 to the last, in JSON and reads it again. The names are frozen: programs keep them.
func roundTrip[T name](t *testing.T, last T, want ...string) {
	t.Helper()
	if int(last)+1 != len(want) {
		t.Fatalf("%T has %d values, and %d names are expected", last, last+1, len(want))
	}
	for v := range last + 1 {
		data, err := json.Marshal(struct{ V T }{v})
		if text, _ := json.Marshal(want[v]); err != nil || string(data) != `{"V":`+string(text)+"}" || v.String() != want[v] {
			t.Errorf("%T %d: %q, %s, %v, want %q", v, v, v, data, err, want[v])
		}
		back := struct{ V T }{last}
		if err := json.Unmarshal(data, &back); err != nil || back.V != v {
			t.Errorf("%T %d: read again %d, %v", v, v, back.V, err)
		}
		var at map[T]int // a key is the name too
		keyed, err := json.Marshal(map[T]int{v: 1})
		if err == nil {
			err = json.Unmarshal(keyed, &at)
		}
		if err != nil || at[v] != 1 {
			t.Errorf("%T %d: as a key %s, %v", v, v, keyed, err)
		}
	}
	for _, bad := range []string{`{"V":"unheard of"}`, `{"V":"` + want[last] + ` "}`} {
		back := struct{ V T }{last}
		if err := json.Unmarshal([]byte(bad), &back); !errors.Is(err, ipalloc.ErrInvalid) || back.V != last {
			t.Errorf("%T: %s read as %v, %v", last, bad, back.V, err)
		}
	}
	for v := last + 1; v != 0; v++ {
		if _, err := v.MarshalText(); !errors.Is(err, ipalloc.ErrInvalid) {
			t.Errorf("%T %d: %v", v, v, err)
		}
	}
}

// Every value has a name of its own, in text and in JSON, and the zero Reason and ChangeKind, which are none, the empty one.
func TestNames(t *testing.T) {
	roundTrip(t, ReasonNotOfNamespace, "", "full", "reserved", "draining", "cooling", "foreign", "limit", "fragmented", "blocks too small",
		"full, only addresses that AssignIP gives are left", "full from there on", "more than one commit takes", "of the other family",
		"only calls that name it", "disabled", "for other uses", "blocks not larger than Head and Tail", "does not select the host",
		"does not select the namespace")
	roundTrip(t, ConfigChanged, "", "assigned", "released", "cooling", "cooled", "lease changed", "attributes changed", "host changed",
		"block claimed", "block orphaned", "block returned", "pool added", "pool changed", "pool removed", "reservations changed",
		"configuration changed")
	roundTrip(t, Random, "fifo", "lowest", "random")
	if got := fmt.Sprint(Reason(99), ChangeKind(99), Liveness(9), Outcome(9), Gone, OwnerChanged, Liveness(0)); got != "reason 99 kind 99 liveness 9 outcome 9 gone owner changed " {
		t.Error("unknown values:", got)
	}
	data, err := json.Marshal(Explanation{Shortage: Shortage{Family: 4, Pool: "a"}})
	var back Explanation
	if err == nil {
		err = json.Unmarshal(data, &back)
	}
	if err != nil || back.Reason != 0 || back.Pool != "a" {
		t.Errorf("%s: %+v, %v", data, back, err)
	}
}
