package storm

import (
	"net/netip"
	"strings"

	"github.com/ipalloc/ipalloc/internal/test/protocol"
	"github.com/ipalloc/ipalloc/internal/wire"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// witness replays the commits of the engine without a space in the model's state, and has each checked before.
type witness struct {
	state *protocol.State
	given map[protocol.Answer]given // every holding so far
	used  map[protocol.Answer]bool  // sequence numbers that a commit used for a holding that it ended too, by block
}

type given struct{ handle, key string }

func newWitness() *witness {
	return &witness{protocol.NewState(int64(skew)), make(map[protocol.Answer]given), make(map[protocol.Answer]bool)}
}

const requestKey = "mq" // begins the key of what was given under a request key

// commit reads the operations of a commit.
func (x *witness) commit(ops []store.Op) *protocol.Commit {
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

// gave reports whether a holding was given, under a request key if there is one. A commit may give it to a caller and end it for another.
func (x *witness) gave(h held, key string, bits uint8) bool {
	if is, ok := x.given[protocol.Answer{At: h.thing, Seq: h.seq}]; ok {
		return is.handle == h.handle && (key == "" || is.key == requestKey+key)
	}
	return x.used[protocol.Answer{At: blockKey(netip.MustParseAddr(h.thing), bits), Seq: h.seq}]
}

// apply makes a commit in the state.
func (x *witness) apply(c *protocol.Commit) {
	for name, b := range c.Blocks {
		for seq := b.Top; seq > x.state.Blocks[name].Top && seq+8 > b.Top; seq-- { // more than a storm has clients; a claim may begin far above 0
			x.used[protocol.Answer{At: name, Seq: seq}] = true
		}
	}
	x.state.Apply(c)
	for at, h := range c.Held {
		if is := (protocol.Answer{At: at, Seq: h.Seq}); h.Seq != 0 {
			x.given[is] = given{h.Handle, x.given[is].key}
		}
	}
	for key, is := range c.Keys {
		x.given[is] = given{x.given[is].handle, key}
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
	k.Handle, k.Host = c.handle, c.host
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
