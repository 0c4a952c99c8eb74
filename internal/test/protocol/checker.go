package protocol

import "fmt"

// State is what the model has of a store. Names of blocks, first records and request keys are the keys of their records.
type State struct {
	Blocks map[string]Block
	Held   map[string]Holding // by address
	First  map[string]string  // by first record: the address of the first holding of a handle
	Keys   map[string]Answer  // by request key
	Skew   int64              // how far clocks may differ
}

// Block is a block. What Owner and Since say is checked if the commit has an engine.
type Block struct {
	Top   uint64 // the highest sequence number that was assigned in it
	Owner string
	Since int64 // when it became empty
	Gone  bool
}

// Holding is the holder of an address. The zero Holding is a free address.
type Holding struct {
	Block, Handle, Host string
	Seq                 uint64
	Until               int64 // the end of a lease
	First               bool
}

// Answer is a holding that was given.
type Answer struct {
	At  string
	Seq uint64
}

// Op is the kind of a call.
type Op int

// The calls, with the numbers that they have in the model. Those after Renew are not in it.
const (
	Assign Op = iota + 1
	ReleaseByHandle
	ReleaseIP
	AutoAssign
	Renew
	RemoveHost
	RenameHost
	Transfer
)

// Call is a call that a commit may carry out.
type Call struct {
	Op           Op
	Handle, Host string
	From         string // the handle that Transfer takes from, or the host of RenameHost
	Named        Answer // of ReleaseIP and Renew; of Transfer the address, if it names one
	Key          string // the request key of AutoAssign
	// Listed is where the handle held an address when the call read that, Got the answer, and Until the end of the lease that it gives. They
	// count if the commit has an engine.
	Listed []string
	Got    Answer
	Until  int64
}

// Commit is a commit that was made. It has the records that it changes, as they are after it.
type Commit struct {
	Engine string // that carries out the only call, completely; "" if the calls are those that it may carry out
	Clock  int64
	Calls  []Call
	Guards map[string]bool // records that it expects at a revision
	Blocks map[string]Block
	Held   map[string]Holding
	First  map[string]string
	Keys   map[string]Answer
}

func (c *Commit) may(can func(*Call) bool) bool {
	for i := range c.Calls {
		if can(&c.Calls[i]) {
			return true
		}
	}
	return false
}

func (k *Call) assigns(handle string) bool {
	return (k.Op == Assign || k.Op == AutoAssign || k.Op == Transfer) && k.Handle == handle
}

// ends reports whether a call may end a holding. An assignment for another host moves it.
func (k *Call) ends(at string, h Holding) bool {
	switch k.Op {
	case ReleaseByHandle:
		return k.Handle == h.Handle && (k.Host == "" || k.Host == h.Host)
	case ReleaseIP:
		return k.Handle == h.Handle && k.Named == Answer{at, h.Seq}
	case RemoveHost:
		return k.Host == h.Host
	case RenameHost:
		return k.From == h.Host
	case Transfer:
		return k.From == h.Handle && (k.Named.At == "" || k.Named.At == at)
	}
	return k.assigns(h.Handle) && k.Host != h.Host
}

// ends reports whether the calls may end a holding of an address, so that it becomes another one. Transfer and RenameHost free no address, but
// a call in the same commit may.
func (c *Commit) ends(at string, was, is Holding) bool {
	return c.may(func(k *Call) bool {
		moved := was
		switch k.Op {
		case Transfer:
			moved.Handle = k.Handle
		case RenameHost:
			moved.Host = k.Host
		default:
			return k.ends(at, was)
		}
		goes := moved.Handle == is.Handle && moved.Host == is.Host && (was.Until == is.Until || c.renews(at, was))
		return k.ends(at, was) && (goes || c.may(func(o *Call) bool { return o != k && o.ends(at, moved) }))
	})
}

// renews reports whether the calls may change the end of a lease.
func (c *Commit) renews(at string, h Holding) bool {
	return c.may(func(k *Call) bool {
		return k.Op == Renew && k.Named == Answer{at, h.Seq} || k.Op != Transfer && k.assigns(h.Handle) && c.Engine == ""
	})
}

func (h Holding) is(o Holding) bool { return h.Handle == o.Handle && h.Seq == o.Seq }

// over reports whether a lease has ended by every clock.
func (s *State) over(h Holding, clock int64) bool { return h.Until != 0 && h.Until+s.Skew <= clock }

// after returns what a commit leaves of an address.
func (s *State) after(c *Commit, at string) Holding {
	if h, ok := c.Held[at]; ok {
		return h
	}
	return s.Held[at]
}

// Check returns an error if the rules do not allow a commit in a state.
func (s *State) Check(c *Commit) error {
	began, since := make(map[string]int), make(map[string]int64)
	for at, is := range c.Held {
		was := s.Held[at]
		block := max(was.Block, is.Block)
		switch {
		case !c.Guards[block]:
			return fmt.Errorf("%s changes, and its block is not expected at a revision", at)
		case was.is(is) && was.Until != is.Until && (c.Engine != "" && s.over(was, c.Clock) || !c.renews(at, was)):
			return fmt.Errorf("the lease of %s changes, and no call renews it", at)
		case was.is(is):
			continue
		case was.Seq != 0 && !s.over(was, c.Clock) && !c.ends(at, was, is):
			return fmt.Errorf("%s of %s as %d ends, and no call releases it", at, was.Handle, was.Seq)
		case is.Seq == 0:
			if since[block] = c.Clock; s.over(was, c.Clock) {
				since[block] = was.Until
			}
			continue
		case !c.may(func(k *Call) bool { return k.assigns(is.Handle) || k.Op == RenameHost && was.Handle == is.Handle }):
			return fmt.Errorf("%s is assigned to %s, and no call asks for it", at, is.Handle)
		case c.Engine != "" && is.Until != c.Calls[0].Until:
			return fmt.Errorf("%s is leased until %d", at, is.Until)
		case is.Seq <= s.Blocks[block].Top || is.Seq > c.Blocks[block].Top:
			return fmt.Errorf("%s has the sequence number %d in a block that had given %d and has given %d", at, is.Seq, s.Blocks[block].Top, c.Blocks[block].Top)
		}
		began[block], since[block] = began[block]+1, 0
	}
	for name, is := range c.Blocks {
		was, there := s.Blocks[name]
		calls := 0
		for i := range c.Calls {
			k := &c.Calls[i]
			if k.assigns(k.Handle) {
				calls++
			}
			for at, h := range s.Held { // one that moves, and ends in the same commit
				if h.Block == name && (k.Op == Transfer || k.Op == RenameHost) && k.ends(at, h) {
					calls++
				}
			}
		}
		switch {
		case is.Top < was.Top:
			return fmt.Errorf("the sequence numbers of block %q go back from %d to %d", name, was.Top, is.Top)
		case there && !was.Gone && is.Top > was.Top+uint64(calls+began[name]), c.Engine != "" && is.Top != was.Top+uint64(began[name]):
			return fmt.Errorf("block %q has used more sequence numbers than calls assign", name)
		case is.Owner != was.Owner && (began[name] == 0 || is.Owner != c.Engine || !s.idle(name, c.Clock)):
			return fmt.Errorf("block %q is taken over", name)
		}
	}
	for name, was := range s.Blocks {
		is, ok := c.Blocks[name]
		if !ok {
			is = was
		}
		if empty, ok := since[name]; c.Engine != "" && (ok && is.Since != empty || !ok && is.Since != was.Since) {
			return fmt.Errorf("block %q is empty since %d", name, is.Since)
		}
	}
	if err := s.first(c); err != nil {
		return err
	}
	for key, is := range c.Keys {
		was := s.Keys[key]
		switch {
		case !c.Guards[key] || !c.may(func(k *Call) bool { return k.Key == key }):
			return fmt.Errorf("the answer of request %q changes, and is not expected at a revision", key)
		case was.Seq != 0 && !s.over(s.Held[was.At], c.Clock) && s.Held[was.At].Seq == was.Seq && s.after(c, was.At).Seq == was.Seq:
			return fmt.Errorf("the answer of request %q changes, and the former one is held", key)
		case is.Seq == 0 || s.Held[is.At].Seq == is.Seq || c.Held[is.At].Seq != is.Seq && !s.passes(c, key, is):
			return fmt.Errorf("the answer of request %q is not what the commit assigns", key)
		}
	}
	if c.Engine != "" {
		return s.whole(c, &c.Calls[0])
	}
	return nil
}

// passes reports whether a commit may assign the answer of a request key for one call and end it for another. Then it leaves the sequence number
// used, and no holding.
func (s *State) passes(c *Commit, key string, is Answer) bool {
	used := false
	for name, b := range c.Blocks {
		used = used || s.Blocks[name].Top < is.Seq && is.Seq <= b.Top
	}
	return used && c.Engine == "" && c.may(func(k *Call) bool {
		given := Holding{Handle: k.Handle, Host: k.Host, Seq: is.Seq}
		return k.Key == key && c.may(func(o *Call) bool { return o != k && o.ends(is.At, given) })
	})
}

// idle reports whether a block may get another owner: it has been empty for a unit of time.
func (s *State) idle(name string, clock int64) bool {
	since := s.Blocks[name].Since
	for _, h := range s.Held {
		if h.Block == name && h.Seq != 0 {
			if !s.over(h, clock) {
				return false
			}
			since = max(since, h.Until)
		}
	}
	return since+1 <= clock
}

// first checks the records of first holdings: each names a holding that says the same, and is new only where it was expected at a revision.
func (s *State) first(c *Commit) error {
	names := func(name, at string) bool { h := s.after(c, at); return h.First && FirstKey(h.Handle) == name }
	for name, is := range c.First {
		switch was := s.First[name]; {
		case is == was:
		case was != "" && names(name, was):
			return fmt.Errorf("the first record %q changes, and its former holding goes on", name)
		case is == "":
		case !c.Guards[name] || !c.may(func(k *Call) bool { return k.Op == Assign && FirstKey(k.Handle) == name }):
			return fmt.Errorf("the first record %q changes, and is not expected at a revision", name)
		case !names(name, is) || c.Engine != "" && s.over(s.after(c, is), c.Clock):
			return fmt.Errorf("the first record %q names another holding", name)
		}
	}
	for at, is := range c.Held {
		now := func(handle string) string {
			if first, ok := c.First[FirstKey(handle)]; ok {
				return first
			}
			return s.First[FirstKey(handle)]
		}
		was := s.Held[at]
		switch {
		case is.First && now(is.Handle) != at:
			return fmt.Errorf("%s is a first holding without the record of %s", at, is.Handle)
		case was.First && !is.First && (was.is(is) || now(was.Handle) == at):
			return fmt.Errorf("%s is no first holding any more, and the record of %s names it", at, was.Handle)
		}
	}
	return nil
}

// FirstKey returns the key of the record of a first holding.
func FirstKey(handle string) string { return "h" + handle }

// whole checks that a commit of an engine carries out its call completely, and expects what the answer relies on.
func (s *State) whole(c *Commit, k *Call) error {
	got := s.after(c, k.Got.At)
	held := func(at string) bool { h := s.Held[at]; return h.Handle == k.Handle && !s.over(h, c.Clock) }
	relies := k.Listed
	var is string // what is held
	switch k.Op {
	case ReleaseByHandle:
		for _, at := range k.Listed {
			if held(at) && s.after(c, at).Handle == k.Handle {
				return fmt.Errorf("%s is not released", at)
			}
		}
	case ReleaseIP:
		if h := s.after(c, k.Named.At); held(k.Named.At) && h.Handle == k.Handle && h.Seq == k.Named.Seq {
			return fmt.Errorf("%s is not released", k.Named.At)
		}
		relies = []string{k.Named.At}
	case Renew:
		if at := k.Named.At; held(at) && s.Held[at].Seq == k.Named.Seq && s.after(c, at).Until != k.Until {
			return fmt.Errorf("%s is not renewed", at)
		}
		relies = []string{k.Named.At}
	case Assign:
		for _, at := range k.Listed {
			if held(at) && (is == "" || at < is && !s.Held[is].First || s.Held[at].First) {
				is = at
			}
		}
		if k.Got.Seq != 0 && !got.First || !c.Guards[FirstKey(k.Handle)] {
			return fmt.Errorf("%s is not the first holding of %s", k.Got.At, k.Handle)
		}
	case AutoAssign:
		if was := s.Keys[k.Key]; was.Seq != 0 {
			if relies = []string{was.At}; held(was.At) && s.Held[was.At].Seq == was.Seq {
				is = was.At
			}
		}
		if key, ok := c.Keys[k.Key]; !c.Guards[k.Key] || ok != (is == "" && k.Got.Seq != 0) || ok && key != k.Got {
			return fmt.Errorf("the request %q is not answered", k.Key)
		}
	}
	if k.assigns(k.Handle) && is == "" {
		for at, h := range s.Held { // its own block comes first
			own := s.Blocks[h.Block].Owner == c.Engine
			if free := h.Seq == 0 || s.over(h, c.Clock); free && at != k.Got.At && (k.Got.Seq == 0 || own && (at < k.Got.At || s.Blocks[got.Block].Owner != c.Engine)) {
				return fmt.Errorf("%s is passed over", at)
			}
			if own || k.Got.Seq == 0 || at == k.Got.At {
				relies = append(relies, at)
			}
		}
		if k.Got.Seq != 0 && (s.Held[k.Got.At].is(got) || got.Handle != k.Handle || got.Seq != k.Got.Seq) {
			return fmt.Errorf("%s is not assigned", k.Got.At)
		}
	}
	if is != "" && (k.Got != Answer{is, s.Held[is].Seq}) {
		return fmt.Errorf("%s is held, and %s was answered", is, k.Got.At)
	}
	for at, h := range c.Held { // the end of a lease is written where something else is
		was := s.Held[at]
		if h.Seq != 0 && !was.is(h) && (is != "" || at != k.Got.At) {
			return fmt.Errorf("%s is assigned, and %s was answered", at, k.Got.At)
		}
		if first := k.Op == Assign && was.First && was.Handle == k.Handle; was.Seq != 0 && h.Seq == 0 && !first && (s.over(was, c.Clock) || k.assigns(k.Handle)) {
			return fmt.Errorf("%s ends in a block that the commit does not write", at)
		}
	}
	if was := s.Blocks[got.Block]; k.assigns(k.Handle) && is == "" && k.Got.Seq != 0 && was.Owner != c.Engine && s.idle(got.Block, c.Clock) && c.Blocks[got.Block].Owner != c.Engine {
		return fmt.Errorf("block %q is idle, and not taken over", got.Block)
	}
	for _, at := range relies {
		if !c.Guards[s.Held[at].Block] {
			return fmt.Errorf("the answer relies on %s, and its block is not expected at a revision", at)
		}
	}
	return nil
}

// Apply makes a commit in the state.
func (s *State) Apply(c *Commit) {
	for name, is := range c.Blocks {
		s.Blocks[name] = is
	}
	apply(s.Held, c.Held)
	apply(s.First, c.First)
	apply(s.Keys, c.Keys)
}

func apply[V comparable](records, changes map[string]V) {
	for key, is := range changes {
		var none V
		if records[key] = is; is == none {
			delete(records, key)
		}
	}
}

// NewState returns the state of an empty store.
func NewState(skew int64) *State {
	return &State{Blocks: make(map[string]Block), Held: make(map[string]Holding), First: make(map[string]string), Keys: make(map[string]Answer), Skew: skew}
}
