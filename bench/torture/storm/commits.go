package storm

import (
	"net/netip"
	"strings"

	"github.com/ipalloc/ipalloc/internal/test/protocol"
	"github.com/ipalloc/ipalloc/internal/wire"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// Witness replays the commits of the engine without a space in the model's state, and has each checked before.
type Witness struct {
	state *protocol.State
	given map[protocol.Answer]string // every holding so far, with its handle
	keyed map[keyed]bool             // what was given under request keys
	used  map[protocol.Answer]bool   // sequence numbers that a commit used for a holding that it ended too, by block
}

type keyed struct{ key, at string }

// NewWitness returns the witness of an empty store.
func NewWitness() *Witness {
	return &Witness{protocol.NewState(int64(skew)), make(map[protocol.Answer]string), make(map[keyed]bool), make(map[protocol.Answer]bool)}
}

const requestKey = "mq" // begins the key of what was given under a request key

// Assigns returns the calls of the model that a call which gives a handle an address at a host may be, with its request key if it has one.
func Assigns(handle, host, key string) []protocol.Call {
	return []protocol.Call{{Op: protocol.Assign, Handle: handle, Host: host}, {Op: protocol.AutoAssign, Handle: handle, Host: host, Key: requestKey + key}}
}

// Replay checks a commit for the calls that it may carry out, and makes it in the state.
func (x *Witness) Replay(ops []store.Op, calls []protocol.Call) error {
	c := x.commit(ops)
	c.Calls = calls
	err := x.state.Check(c)
	x.apply(c)
	return err
}

// commit reads the operations of a commit.
func (x *Witness) commit(ops []store.Op) *protocol.Commit {
	c := &protocol.Commit{Guards: make(map[string]bool), Blocks: make(map[string]protocol.Block), Held: make(map[string]protocol.Holding),
		First: make(map[string]string), Keys: make(map[string]protocol.Answer)}
	for _, op := range ops {
		if op.Expect != store.AnyRevision {
			c.Guards[op.Key] = true
		}
		if op.Kind == store.Guard {
			continue
		}
		switch kind := op.Key[0]; {
		case kind == 'b':
			b := x.state.Blocks[op.Key]
			if b.Gone = op.Kind == store.Delete; !b.Gone {
				b.Top = top(op.Value)
			}
			c.Blocks[op.Key] = b
		case kind == 'a':
			at, was := address(op.Key[2:]).String(), protocol.Holding{}
			if op.Kind == store.Put {
				was = holdingOf(address(op.Key[2:]), op.Value)
			}
			if was != x.state.Held[at] {
				c.Held[at] = was
			}
		case kind == 'h' && !strings.Contains(op.Key, "\x00"):
			c.First[op.Key] = ""
			if op.Kind == store.Put {
				c.First[op.Key] = address(op.Value[1:]).String()
			}
		case strings.HasPrefix(op.Key, requestKey):
			c.Keys[op.Key] = protocol.Answer{}
			if op.Kind == store.Put {
				c.Keys[op.Key] = answerOf(op.Value)
			}
		}
	}
	return c
}

// gave reports whether a holding was given. Under a request key the address must have been given before; the handle may have got it again by
// another call. A commit may give a holding to a caller and end it for another.
func (w *world) gave(h held, key string) bool {
	x, p := w.db.witness, w.plan.pool
	if is, ok := x.given[protocol.Answer{At: h.thing, Seq: h.seq}]; ok {
		return is == h.handle && (key == "" || x.keyed[keyed{requestKey + key, h.thing}])
	}
	at := netip.MustParseAddr(h.thing)
	if spare.Prefix.Contains(at) {
		p = spare
	}
	return x.used[protocol.Answer{At: blockKey(at, uint8(p.BlockBits)), Seq: h.seq}]
}

// apply makes a commit in the state.
func (x *Witness) apply(c *protocol.Commit) {
	for name, b := range c.Blocks {
		for seq := b.Top; seq > x.state.Blocks[name].Top && seq+8 > b.Top; seq-- { // more than a storm has clients; a claim may begin far above 0
			x.used[protocol.Answer{At: name, Seq: seq}] = true
		}
	}
	x.state.Apply(c)
	for at, h := range c.Held {
		if is := (protocol.Answer{At: at, Seq: h.Seq}); h.Seq != 0 {
			x.given[is] = h.Handle
		}
	}
	for key, is := range c.Keys {
		x.keyed[keyed{key, is.At}] = true
	}
}

func address(s string) netip.Addr {
	a, _ := netip.AddrFromSlice([]byte(s[:4]))
	return a
}

func blockKey(at netip.Addr, bits uint8) string {
	block, _ := at.Prefix(int(bits))
	return "b4" + string(block.Addr().AsSlice()) + string([]byte{bits})
}

// top reads the sequence number of a block: after its owner, its reserved ends and two times.
func top(value string) (seq uint64) {
	r := wire.Read(value)
	r.Version(1)
	flags := r.Reader.Byte()
	if flags&3 != 0 {
		r.Bytes(r.Uvarint())
	}
	if flags&4 != 0 {
		r.Uvarint()
		r.Uvarint()
	}
	r.Varint()
	r.Varint()
	return r.Uvarint()
}

// holdingOf reads the record of an address, which nobody holds while it cools.
func holdingOf(at netip.Addr, value string) (h protocol.Holding) {
	r := wire.Read(value)
	r.Version(1)
	flags, bits := r.Uvarint(), r.Reader.Byte()
	h.Block = blockKey(at, bits)
	h.Seq, h.First = r.Uvarint(), flags&(1<<11) != 0
	if flags&4 != 0 {
		h.Until = r.Varint()
	}
	if flags&24 != 0 {
		h.Host = r.Bytes(r.Uvarint())
	}
	if flags&32 != 0 {
		h.Handle = r.Bytes(r.Uvarint())
	}
	if r.Err != nil {
		panic(r.Err)
	}
	if flags&1 != 0 {
		return protocol.Holding{}
	}
	return h
}

// answerOf reads what was given under a request key.
func answerOf(value string) (a protocol.Answer) {
	r := wire.Read(value)
	r.Version(1)
	r.Varint()
	r.Bytes(r.Uvarint())
	if r.Uvarint() == 0 {
		return a
	}
	at := address(r.Bytes(5)[1:])
	r.Reader.Byte()
	return protocol.Answer{At: at.String(), Seq: r.Uvarint()}
}

// modelled returns a call as the model has it.
func (c *call) modelled(planted string) (k protocol.Call) {
	k.Handle, k.Host, k.From, k.Named.At = c.handle, c.host, c.from, c.thing
	switch c.kind {
	case assign, existing, offer, together:
		k.Op = protocol.Assign
	case autoAssign, assignIP:
		k.Op = protocol.AutoAssign
	case request:
		k.Op, k.Key = protocol.AutoAssign, requestKey+c.key
	case renewIP, releaseIPs:
		k.Op, k.Handle, k.Named = protocol.ReleaseIP, c.at.Handle, protocol.Answer{At: c.at.Address.String(), Seq: c.at.Seq}
		if planted == releasesLate {
			k.Named.Seq++
		}
		if c.kind == renewIP {
			k.Op = protocol.Renew
		}
	case togetherRelease:
		k.Op, k.Host = protocol.ReleaseByHandle, ""
	case releaseByHandle:
		k.Op = protocol.ReleaseByHandle
	case removeHost:
		k.Op = protocol.RemoveHost
	case renameHost:
		k.Op = protocol.RenameHost
	case transfer:
		k.Op = protocol.Transfer
	}
	return k
}

// judge has a commit checked that was made for a process: the model allows it, for the calls of the process that may still take effect.
func (w *world) judge(of *conn, c *protocol.Commit) {
	c.Clock = w.now.UnixNano()
	for _, p := range w.ledger.calls {
		if w.ledger.open[p] && p.of.conn == of {
			c.Clock = w.now.Add(p.of.offset).UnixNano()
			c.Calls = append(c.Calls, p.modelled(w.db.planted))
		}
	}
	if err := w.db.witness.state.Check(c); err != nil {
		w.wrong("%s: %v", of.name, err)
	}
}
