package main

import (
	"bufio"
	"fmt"
	"io"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The kinds of calls of a year.
const (
	yearAssign = iota
	yearRelease
	yearRemove
	yearTidy
	yearKinds
)

var yearNames = [yearKinds]string{"AutoAssign", "ReleaseByHandle", "RemoveHost", "tidying at a tick"}

// yearSide is a contestant of a year. Only assign, free, remove, and the calls that tidy returns, are counted.
type yearSide interface {
	addPool(p netip.Prefix, blockBits int) error
	hostComes(host string)
	hostGoes(host string) error
	assign(host, handle string, blocks int) (lease, error)
	free(h holder) error // fails if it released something else
	remove(host string, held []holder) error
	// tidy returns the calls that are due now; used says how many addresses of a block are held.
	tidy(now time.Time, used map[netip.Prefix]int) []func() error
	traffic() (trips, bytes int)
	look() stored
}

// holder is whose an address is, for the oracle.
type holder struct {
	addr         netip.Addr
	handle, host string
}

// stored is what the store of a contestant holds.
type stored struct {
	handles        map[netip.Addr]string
	blocks         map[netip.Prefix]string // and their hosts
	records, bytes int
}

// yearDay is what was measured on a day, or the sum over several.
type yearDay struct {
	uses  [yearKinds]yearUse
	state [7]int // at midnight
}

// yearUse has sums over calls of one kind.
type yearUse [4]int

const ( // in a yearUse
	calls = iota
	trips
	moved // bytes read and written
	cpu   // nanoseconds
)

const ( // in a state
	held = iota
	borrowed
	blocks
	needed
	orphans
	records
	size
)

func (u *yearUse) add(o yearUse) {
	for i := range u {
		u[i] += o[i]
	}
}

func (d *yearDay) add(o yearDay) {
	for k := range d.uses {
		d.uses[k].add(o.uses[k])
	}
	for i := range d.state {
		d.state[i] += o.state[i]
	}
}

// yearRun is the year of one contestant. The oracle is held and pods: who was told that an address is his.
type yearRun struct {
	side   yearSide
	about  string // what was simulated
	bits   int    // of a block
	held   map[netip.Addr]holder
	pods   map[string]netip.Addr
	gone   map[string]bool // hosts
	days   []yearDay
	today  yearDay
	faults map[string]int // how often a call failed, or did what it should not
	fault1 error          // the first of them
}

// replayYear makes the calls that bench/scale has recorded; its calls.go says how. Faults end it, unless it is lenient.
func replayYear(in io.Reader, side yearSide, lenient bool) (*yearRun, error) {
	y := &yearRun{side: side, faults: map[string]int{}, held: map[netip.Addr]holder{}, pods: map[string]netip.Addr{}, gone: map[string]bool{}}
	n := 0
	for lines := bufio.NewScanner(in); lines.Scan(); {
		n++
		err := y.line(lines.Text())
		if err == nil && !lenient {
			err = y.fault1
		}
		if err != nil {
			return nil, fmt.Errorf("day %d, line %d, %q: %w", len(y.days), n, lines.Text(), err)
		}
	}
	if len(y.days) < 3 || y.today != (yearDay{}) {
		return nil, fmt.Errorf("%d whole days; it takes three, and the end of the last", len(y.days))
	}
	return y, nil
}

func (y *yearRun) line(text string) (err error) {
	f := append(strings.Fields(text), "", "", "")
	pod, host := "pod-"+f[1], "node-"+f[1]
	switch f[0] {
	case "#":
		y.about = strings.TrimPrefix(text, "# ")
	case "p":
		var p netip.Prefix
		if p, err = netip.ParsePrefix(f[1]); err == nil {
			y.bits, err = strconv.Atoi(f[2])
		}
		if err == nil {
			err = y.side.addPool(p, y.bits)
		}
	case "a":
		y.assign(pod, "node-"+f[2])
	case "f":
		err = y.free(pod)
	case "r":
		err = y.remove(host)
	case "t":
		var s int64
		if s, err = strconv.ParseInt(f[1], 10, 64); err == nil {
			y.call(yearTidy, y.side.tidy(time.Unix(s, 0), y.used())...)
		}
	case "d":
		y.midnight()
	default:
		err = fmt.Errorf("no such call")
	}
	return err
}

// call makes a call. On one core the CPU time of the process is that of the call, of goroutines that it starts, and of the garbage
// collector.
func (y *yearRun) call(kind int, fs ...func() error) {
	n, b := y.side.traffic()
	begin := processTime()
	for _, f := range fs {
		if err := f(); err != nil {
			y.fault(yearNames[kind]+" failed", "%w", err)
		}
	}
	took := processTime() - begin
	n2, b2 := y.side.traffic()
	y.today.uses[kind].add(yearUse{calls: 1, trips: n2 - n, moved: b2 - b, cpu: int(took)})
}

func (y *yearRun) fault(what, format string, args ...any) {
	y.faults[what]++
	if y.fault1 == nil {
		y.fault1 = fmt.Errorf("%s: "+format, append([]any{what}, args...)...)
	}
}

func (y *yearRun) assign(pod, host string) {
	y.side.hostComes(host)
	var l lease
	y.call(yearAssign, func() (err error) { l, err = y.side.assign(host, pod, 0); return err })
	a := l.addr
	if l.text != "" {
		a = netip.MustParseAddr(l.text)
	}
	if !a.IsValid() {
		y.fault("no address", "%s", pod)
		return
	}
	if was, ok := y.held[a]; ok {
		delete(y.pods, was.handle)
		y.fault("an address given twice", "%v to %s and %s", a, was.handle, pod)
	}
	y.held[a], y.pods[pod] = holder{a, pod, host}, a
}

func (y *yearRun) free(pod string) error {
	a, ok := y.pods[pod]
	if !ok && y.fault1 == nil { // else it may have got none
		return fmt.Errorf("%s has no address", pod)
	}
	if ok {
		h := y.held[a]
		delete(y.held, a)
		delete(y.pods, pod)
		y.call(yearRelease, func() error { return y.side.free(h) })
	}
	return nil
}

func (y *yearRun) remove(host string) error {
	var all []holder
	for _, h := range y.held {
		if h.host == host {
			all = append(all, h)
		}
	}
	slices.SortFunc(all, func(a, b holder) int { return a.addr.Compare(b.addr) })
	for _, h := range all {
		delete(y.held, h.addr)
		delete(y.pods, h.handle)
	}
	y.gone[host] = true
	err := y.side.hostGoes(host)
	y.call(yearRemove, func() error { return y.side.remove(host, all) })
	return err
}

func (y *yearRun) blockOf(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, y.bits).Masked() }

func (y *yearRun) used() map[netip.Prefix]int {
	used := make(map[netip.Prefix]int)
	for a := range y.held {
		used[y.blockOf(a)]++
	}
	return used
}

// midnight compares what is stored with the oracle.
func (y *yearRun) midnight() {
	s, d := y.side.look(), &y.today.state
	for a, h := range y.held {
		if s.handles[a] != h.handle {
			y.fault("an address lost", "%s holds %v, stored is %q", h.handle, a, s.handles[a])
		}
		if s.blocks[y.blockOf(a)] != h.host {
			d[borrowed]++
		}
	}
	if len(s.handles) > len(y.held) {
		y.fault("addresses that nobody holds", "%d are stored, %d held", len(s.handles), len(y.held))
	}
	for _, host := range s.blocks {
		if host == "" || y.gone[host] {
			d[orphans]++
		}
	}
	room := 1 << (32 - y.bits)
	d[held], d[blocks], d[needed], d[records], d[size] = len(y.held), len(s.blocks), (len(y.held)+room-1)/room, s.records, s.bytes
	y.days, y.today = append(y.days, y.today), yearDay{}
}

// runYear replays the calls on both, one after the other, and returns the tables.
func runYear(file string, log io.Writer) (string, error) {
	runtime.GOMAXPROCS(1)
	var runs [2]*yearRun
	for i, side := range []yearSide{newOursYear(), newCalicoYear()} {
		begin := time.Now()
		in, err := os.Open(file)
		if err != nil {
			return "", err
		}
		runs[i], err = replayYear(in, side, i > 0)
		in.Close()
		if err != nil {
			return "", fmt.Errorf("%s: %w", columns[i].title, err)
		}
		fmt.Fprintf(log, "%6.1fs  %s\n", time.Since(begin).Seconds(), columns[i].title)
	}
	return yearTables(runs[0], runs[1]), nil
}
