package protocol

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// traces are the settings of which spin prints every transition, and the numbers of attempts to commit that it prints. The last one is that of
// the short form.
var traces = []string{
	"TICKS=1 AUTO=2 SKEW=1 CALLS=2 CALLS1=1",
	"AUTO=1 CALLS=3 CALLS1=2",
	"UNK=1 AUTO=1 CALLS1=1",
}

// line reads numbers.
type line []int64

func (l *line) next() int64 {
	n := (*l)[0]
	*l = (*l)[1:]
	return n
}

func (l *line) bool() bool { return l.next() != 0 }

func (l *line) uint() uint64 { return uint64(l.next()) }

const key = "q"

var (
	blocks, addresses = []string{"b0", "b1"}, []string{"0", "1"}                // an address in each block
	records           = []string{"b0", "b1", FirstKey("1"), FirstKey("2"), key} // in the order of the model
	printedLine       = regexp.MustCompile("^(begin|commit|late) E ")
)

func name(n int64) string { return strconv.FormatInt(n, 10) }

// state reads a store.
func (l *line) state(skew int64) *State {
	s := NewState(skew)
	for _, b := range blocks {
		s.Blocks[b] = Block{Top: l.uint(), Owner: name(l.next()), Since: l.next()}
	}
	for i, at := range addresses {
		h := Holding{Block: blocks[i], Handle: name(l.next()), Seq: l.uint(), Until: l.next(), First: l.bool()}
		if h.Seq == 0 {
			h = Holding{Block: blocks[i]}
		}
		s.Held[at] = h
	}
	for h := range int64(2) {
		if first := FirstKey(name(h + 1)); l.bool() {
			s.First[first] = "none"
			for at, is := range s.Held {
				if FirstKey(is.Handle) == first && is.First {
					s.First[first] = at
				}
			}
		}
	}
	if there, at, seq := l.bool(), l.next(), l.uint(); there {
		s.Keys[key] = Answer{name(at), seq}
	}
	return s
}

// differences returns those values of a map that another one has not, and zero ones for those that have gone.
func differences[V comparable](is, was map[string]V) map[string]V {
	d := make(map[string]V)
	for k, v := range is {
		if was[k] != v {
			d[k] = v
		}
	}
	for k := range was {
		if _, ok := is[k]; !ok {
			var none V
			d[k] = none
		}
	}
	return d
}

// between makes a commit of what differs between two states.
func (c Commit) between(s, after *State) *Commit {
	c.Blocks, c.Held = differences(after.Blocks, s.Blocks), differences(after.Held, s.Held)
	c.First, c.Keys = differences(after.First, s.First), differences(after.Keys, s.Keys)
	return &c
}

// attempt is a transition that spin printed.
type attempt struct {
	commit     Commit // without differences
	was, after string
	made       bool
	fresh      bool // the call read the state in which it was made
	stale      bool
}

// trace is all that spin printed.
type trace struct {
	skew     int64
	leases   bool
	states   map[string]*State
	attempts map[string]attempt
	begins   map[string]line // where calls begin
}

func (t *trace) add(text string) (string, *State) {
	s := t.states[text]
	if s == nil {
		l := numbers(text)
		s = l.state(t.skew)
		t.states[text] = s
	}
	return text, s
}

// numbers returns the numbers of a text, without its words.
func numbers(text string) (l line) {
	for _, f := range strings.Fields(text) {
		if n, err := strconv.ParseInt(f, 10, 64); err == nil {
			l = append(l, n)
		}
	}
	return l
}

const width = 19 // numbers of a state

// cut parts the numbers of a state from the end of a text.
func cut(text string) (rest, state string) {
	f := strings.Fields(text)
	return strings.Join(f[:len(f)-width], " "), strings.Join(f[len(f)-width:], " ")
}

// read reads a line that spin printed.
func (t *trace) read(text string) {
	parts := strings.Split(text, "|")
	rest, was := cut(parts[0])
	l := numbers(rest)
	_, s := t.add(was)
	if strings.HasPrefix(text, "begin ") {
		t.begins[text] = l
		return
	}
	late := strings.HasPrefix(text, "late ")
	c := Commit{Engine: name(l.next()), Clock: 1, Guards: make(map[string]bool)}
	k := Call{Op: Op(l.next()), Handle: name(l.next())}
	if !late {
		if k.Named = (Answer{name(l.next()), l.uint()}); k.Op != ReleaseIP && k.Op != Renew {
			k.Named = Answer{}
		}
	}
	k.Listed = places(l.next())
	if !late {
		c.Clock = l.next()
	}
	mask := l.next()
	for i, record := range records {
		if mask>>i&1 != 0 {
			c.Guards[record] = true
		}
	}
	at, seq := l.next(), l.uint()
	if late && k.Op == ReleaseIP {
		k.Named = Answer{strings.Join(k.Listed, ""), seq}
	}
	if k.assigns(k.Handle) && seq != 0 {
		k.Got = Answer{name(at), seq}
	}
	if fresh := len(l) > 0 && l.bool(); late && k.Op == Assign && !fresh && c.Guards[FirstKey(k.Handle)] {
		if h := s.Held[k.Got.At]; h.Handle == k.Handle && h.Seq == seq {
			k.Listed = []string{k.Got.At}
		}
	}
	a := attempt{was: was}
	if k.complete(c.Clock, t.leases); k.Op == ReleaseByHandle || k.Op == Assign {
		a.fresh = slices.Equal(k.Listed, holds(s, k.Handle))
	} else {
		a.fresh, k.Listed = true, nil
	}
	c.Calls = []Call{k}
	a.commit = c
	expects := numbers(parts[1])
	for i := 0; i < len(expects); i += 2 {
		a.stale = a.stale || expects[i] != expects[i+1]
	}
	rest, a.after = cut(parts[2])
	t.add(a.after)
	a.made = rest == "result 1"
	if late {
		a.fresh = false
	}
	t.attempts[text] = a
}

// complete gives an AutoAssign its request key, and the leases of a setting with time their end.
func (k *Call) complete(clock int64, leases bool) {
	if k.Op == AutoAssign {
		k.Key = key
	}
	if leases && k.Handle == "2" {
		k.Until = clock + 1
	}
}

// places returns the addresses of a mask.
func places(mask int64) (list []string) {
	for i, at := range addresses {
		if mask>>i&1 != 0 {
			list = append(list, at)
		}
	}
	return list
}

// holds returns the addresses that the records name for a handle.
func holds(s *State, handle string) (list []string) {
	for _, at := range addresses {
		if s.Held[at].Handle == handle {
			list = append(list, at)
		}
	}
	return list
}

// printed has spin print the transitions of a setting into a file, and reads it.
func printed(t *testing.T, model, setting string) *trace {
	tr := &trace{states: make(map[string]*State), attempts: make(map[string]attempt), begins: make(map[string]line)}
	if tr.leases = strings.Contains(setting, "TICKS=1"); tr.leases {
		tr.skew = 1
	}
	file := filepath.Join(t.TempDir(), "trace")
	out := search(t, model, setting+" TRACE", "-DPRINTF")
	if err := os.WriteFile(file, []byte(out), 0o600); err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	for text := range strings.Lines(out) {
		if text = strings.TrimSpace(text); printedLine.MatchString(text) && !seen[text] {
			seen[text] = true
			tr.read(text)
		}
	}
	return tr
}

// id names a commit without its guards.
func (c *Commit) id(was, after string) string {
	k := c.Calls[0]
	return fmt.Sprint(c.Engine, c.Clock, k.Op, k.Handle, k.Named, k.Listed, k.Got, "\n", was, "\n", after)
}

// calls returns the calls that may begin, which spin printed with a state.
func (t *trace) calls(l line, s *State, setting string) (engine string, clock int64, list []Call) {
	engine, clock = name(l.next()), l.next()
	for h := range int64(2) {
		handle := name(h + 1)
		at, seq := l.next(), l.uint()
		list = append(list, Call{Op: Assign, Handle: handle, Listed: holds(s, handle)})
		if all := holds(s, handle); all != nil {
			list = append(list, Call{Op: ReleaseByHandle, Handle: handle, Listed: all})
		}
		auto := strings.Contains(setting, "AUTO="+handle)
		if at != 0 {
			list = append(list, Call{Op: ReleaseIP, Handle: handle, Named: Answer{name(at - 1), seq}})
			if auto && t.leases {
				list = append(list, Call{Op: Renew, Handle: handle, Named: Answer{name(at - 1), seq}})
			}
		}
		if auto {
			list = append(list, Call{Op: AutoAssign, Handle: handle})
		}
	}
	return engine, clock, list
}

// TestTraces has spin print every attempt to commit of a setting. The checker accepts each that was made, and from the states in which calls
// begin no others: whatever state the commit leaves, whatever it answers, and whichever guard it drops. It accepts none of which one number is
// another one.
func TestTraces(t *testing.T) {
	text := model(t, "model.pml")
	for i, setting := range traces {
		if testing.Short() && i < len(traces)-1 {
			continue
		}
		tr := printed(t, text, setting)
		made := make(map[string]bool)
		for text, a := range tr.attempts {
			c := a.commit.between(tr.states[a.was], tr.states[a.after])
			if a.made == a.stale && !strings.HasSuffix(strings.Split(text, "|")[2], " result 3 "+a.after) || !a.made && a.was != a.after {
				t.Fatalf("%s: made %v, stale %v", text, a.made, a.stale)
			}
			if err := tr.states[a.was].Check(c); err != nil && a.made {
				t.Fatalf("%s: %s: %v", setting, text, err)
			}
			if !a.made || !a.fresh {
				continue
			}
			made[c.id(a.was, a.after)] = true
			for guard := range c.Guards {
				less := *c
				less.Guards = maps.Clone(c.Guards)
				delete(less.Guards, guard)
				if tr.states[a.was].Check(&less) == nil {
					t.Fatalf("%s: %s: accepted without %s", setting, text, guard)
				}
			}
			for i := range width {
				for _, by := range []int64{-1, 1} {
					l := numbers(a.after)
					if l[i] += by; l[i] < 0 {
						continue
					}
					other := strings.Trim(fmt.Sprint([]int64(l)), "[]")
					is := l.state(tr.skew)
					if same := reflect.DeepEqual(is, tr.states[a.after]); !same && tr.states[other] == nil && tr.states[a.was].Check(a.commit.between(tr.states[a.was], is)) == nil {
						t.Fatalf("%s: %s: accepted with %s after it", setting, text, other)
					}
				}
			}
		}
		all := make(map[string]bool)
		for _, record := range records {
			all[record] = true
		}
		asked := 0
		for text, l := range tr.begins {
			_, was := cut(text)
			s := tr.states[was]
			engine, clock, calls := tr.calls(l, s, setting)
			for _, k := range calls {
				k.complete(clock, tr.leases)
				for after, is := range tr.states {
					answers := []Answer{{}}
					if k.assigns(k.Handle) {
						for _, at := range addresses {
							for seq := range is.Held[at].Seq + 1 {
								answers = append(answers, Answer{at, seq + 1})
							}
						}
					}
					for _, k.Got = range answers {
						c := Commit{Engine: engine, Clock: clock, Calls: []Call{k}, Guards: all}.between(s, is)
						asked++
						if err := s.Check(c); (err == nil) != made[c.id(was, after)] {
							t.Fatalf("%s: %s: %+v to %s: printed %v: %v", setting, text, k, after, err != nil, err)
						}
					}
				}
			}
		}
		t.Logf("%s: %d states of the store, %d attempts to commit, %d made; %d others refused", setting, len(tr.states), len(tr.attempts), len(made), asked-len(made))
	}
}

// TestAnswerThatEnds checks a commit that answers a request key for one call and ends the holding for another.
func TestAnswerThatEnds(t *testing.T) {
	check := func(top uint64, calls ...Call) error {
		return NewState(0).Check(&Commit{
			Calls: calls, Guards: map[string]bool{"b": true, key: true},
			Blocks: map[string]Block{"b": {Top: top}}, Keys: map[string]Answer{key: {"0", 1}},
		})
	}
	asks := Call{Op: AutoAssign, Handle: "1", Host: "n", Key: key}
	ends := Call{Op: RemoveHost, Host: "n"}
	if err := check(1, asks, ends); err != nil {
		t.Error(err)
	}
	for _, bad := range []error{check(1, asks), check(0, asks, ends), check(1, asks, Call{Op: RemoveHost, Host: "m"}), check(1, ends)} {
		if bad == nil {
			t.Error("accepted an answer that no call gives, or that none ends")
		}
	}
}
