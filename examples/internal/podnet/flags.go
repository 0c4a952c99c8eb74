package podnet

import (
	"flag"
	"fmt"
	"strings"
	"time"

	"github.com/ipalloc/ipalloc/examples/internal/trace"
	"github.com/ipalloc/ipalloc/examples/internal/wording"
)

// Flags are the flags about pods, as they stand on the command line.
type Flags struct {
	File           string // of the trace, empty for the built-in one
	pool4, pool6   string
	block4, block6 int
	place          string
	idle           time.Duration
}

// The pools fit the clusters they are for. The built-in one is a size too small on purpose: its 40
// nodes cannot all have an IPv4 block, so that some borrow.
const (
	defaultPool4, defaultBlock4 = "10.244.0.0/16", 26
	defaultPool6, defaultBlock6 = "fd00:10:244::/64", 122
	builtinPool4, builtinBlock4 = "10.244.0.0/24", 29
	builtinPool6, builtinBlock6 = "fd00:10:244::/116", 122
)

// Register adds the flags to a set.
func (f *Flags) Register(set *flag.FlagSet) {
	set.StringVar(&f.File, "pods", "", "trace of pods: a CSV `file` with the columns "+strings.Join(trace.PodColumns, ",")+
		" and perhaps "+trace.NodeColumn+" (default: a built-in trace of 163 pods); times are in seconds, a pod without deletion time stays")
	set.StringVar(&f.pool4, "podpool4", "", "IPv4 `prefix` that the pods' addresses come from, or none "+
		"(default "+defaultPool4+"; for the built-in trace "+builtinPool4+")")
	set.StringVar(&f.pool6, "podpool6", "", "IPv6 `prefix` likewise (default "+defaultPool6+"; for the built-in trace "+builtinPool6+"); without both there are no pods")
	set.IntVar(&f.block4, "block4", 0, fmt.Sprintf("prefix `length` of the IPv4 blocks that nodes claim (default %d; for the built-in trace %d)", defaultBlock4, builtinBlock4))
	set.IntVar(&f.block6, "block6", 0, fmt.Sprintf("prefix `length` of the IPv6 blocks (default %d)", defaultBlock6))
	set.StringVar(&f.place, "place", string(trace.Least), "where pods go whose trace names no node, a `rule`: least, to the least loaded node; most, to the most loaded one that has room")
	set.DurationVar(&f.idle, "idle", time.Hour, "how long a block is empty before it goes back to the pool, in whole seconds of the trace; 0 is for ever")
}

// Config returns what the flags say, but for nodes and events, and where pods go.
func (f *Flags) Config() (cfg Config, place trace.Placement, err error) {
	builtin := f.File == ""
	orElse := func(s *string, builtinPool, pool string) {
		switch {
		case *s != "":
		case builtin:
			*s = builtinPool
		default:
			*s = pool
		}
	}
	orElse(&f.pool4, builtinPool4, defaultPool4)
	orElse(&f.pool6, builtinPool6, defaultPool6)
	if f.block4 == 0 {
		f.block4 = defaultBlock4
		if builtin {
			f.block4 = builtinBlock4
		}
	}
	if f.block6 == 0 {
		f.block6 = defaultBlock6
	}
	if place, err = trace.ParsePlacement(f.place); err != nil {
		return cfg, place, fmt.Errorf("-place: %w", err)
	}
	if cfg.Idle = f.idle; f.idle < 0 || f.idle%time.Second != 0 {
		return cfg, place, fmt.Errorf("-idle %v: whole seconds are needed", f.idle)
	}
	if err := cfg.addRange(4, f.pool4, f.block4); err != nil {
		return cfg, place, err
	}
	return cfg, place, cfg.addRange(6, f.pool6, f.block6)
}

// addRange reads the flags of one family.
func (c *Config) addRange(version int, pool string, block int) error {
	p, ok, err := wording.Prefix(fmt.Sprintf("-podpool%d", version), pool, version)
	if err != nil || !ok {
		return err
	}
	if block < p.Bits() || block > p.Addr().BitLen() {
		return fmt.Errorf("-block%d %d: no block of %v has that length", version, block, p)
	}
	if p.Addr().BitLen()-p.Bits() > 64 {
		return fmt.Errorf("-podpool%d %v: more than 2^64 addresses", version, p)
	}
	c.Ranges = append(c.Ranges, Range{Name: fmt.Sprintf("IPv%d", version), Pool: p, BlockBits: block})
	return nil
}
