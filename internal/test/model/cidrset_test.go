package model_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/internal/test/model"
)

// cidrDo does what the words say and returns the answer as words.
func cidrDo(m *model.CidrSet, words string) string {
	var op, arg string
	var second int64
	fmt.Sscan(words, &second, &op, &arg)
	now := time.Unix(second, 0)
	var got any
	var f model.CidrFailure
	number := 0
	fmt.Sscan(arg, &number)
	switch op {
	case "next":
		got, f = m.AllocateNext(now)
	case "nextn":
		got, f = m.AllocateN(number, now)
	case "fit":
		got, f = m.AllocatePrefix(number, now)
	case "occupy":
		got, f = m.Occupy(netip.MustParsePrefix(arg))
	case "release":
		got, f = m.Release(netip.MustParsePrefix(arg), now)
	case "releasen":
		var ps []netip.Prefix
		for _, p := range strings.Split(arg, ",") {
			ps = append(ps, netip.MustParsePrefix(p))
		}
		got, f = m.ReleaseN(ps, now)
	case "has":
		got = fmt.Sprint(m.Has(netip.MustParsePrefix(arg)), m.HasAny(netip.MustParsePrefix(arg)))
	}
	switch {
	case f.Kind == model.CidrCooling:
		return fmt.Sprintf("%s %d", f.Kind, f.Until.Unix())
	case f.Kind != "":
		return f.Kind
	}
	return fmt.Sprint(got)
}

// The rules of the specification, worked by hand: second, operation, answer.
func TestCidrTwinByHand(t *testing.T) {
	for _, c := range []struct {
		pool     string
		bits     int
		policy   int
		cooldown time.Duration
		steps    [][2]string
	}{
		{"10.0.0.0/30", 32, model.CidrRoundRobin, 0, [][2]string{
			{"0 next", "10.0.0.0/32"}, {"0 next", "10.0.0.1/32"}, {"0 release 10.0.0.1/32", "1"}, {"0 next", "10.0.0.2/32"},
			{"0 occupy 10.0.0.3/32", "1"}, {"0 next", "10.0.0.1/32"}, {"0 next", "full"}, {"0 release 10.0.0.0/31", "2"},
			{"0 nextn 3", "full"}, {"0 nextn 2", "[10.0.0.0/32 10.0.0.1/32]"},
		}},
		{"10.0.0.0/22", 24, model.CidrRoundRobin, 0, [][2]string{
			{"0 occupy 10.0.1.7/32", "1"}, {"0 has 10.0.1.0/24", "true true"}, {"0 has 10.0.0.0/23", "false true"}, {"0 occupy 0.0.0.0/0", "3"},
			{"0 has 10.0.0.0/22", "true true"}, {"0 has 10.0.0.0/21", "false true"}, {"0 release 10.0.0.0/21", "out of range"},
			{"0 release 10.0.1.128/25", "misaligned"}, {"0 release 10.0.2.0/23", "2"}, {"0 release 10.0.0.0/22", "2"}, {"0 release 10.0.0.0/22", "0"},
			{"0 occupy 10.0.4.0/24", "out of range"}, {"0 occupy fd00::/64", "out of range"}, {"0 occupy 10.0.1.0/22", "bad prefix"},
			{"0 occupy ::ffff:10.0.0.0/128", "bad prefix"}, {"0 releasen 10.0.0.0/24,10.0.9.0/24", "out of range"},
		}},
		{"10.0.0.0/29", 32, model.CidrLowest, 0, [][2]string{
			{"0 fit 32", "10.0.0.0/32"}, {"0 fit 30", "10.0.0.4/30"}, {"0 fit 31", "10.0.0.2/31"}, {"0 release 10.0.0.4/30", "4"},
			{"0 fit 32", "10.0.0.1/32"}, {"0 fit 29", "full"}, {"0 fit 28", "bad bits"}, {"0 fit 33", "bad bits"}, {"0 next", "10.0.0.4/32"},
			{"0 next", "10.0.0.5/32"}, {"0 releasen 10.0.0.4/32,10.0.0.0/32,10.0.0.4/32", "2"}, {"0 next", "10.0.0.0/32"},
		}},
		{"10.0.0.0/30", 32, model.CidrRoundRobin, 10 * time.Second, [][2]string{
			{"0 occupy 10.0.0.0/31", "2"}, {"0 release 10.0.0.1/32", "1"}, {"5 release 10.0.0.0/31", "1"}, {"5 has 10.0.0.0/31", "false false"},
			{"5 nextn 3", "cooling 10"}, {"5 nextn 4", "cooling 15"}, {"5 nextn 5", "full"}, {"20 nextn 3", "[10.0.0.2/32 10.0.0.3/32 10.0.0.1/32]"},
			{"20 next", "10.0.0.0/32"}, {"20 next", "full"}, {"20 release 10.0.0.0/32", "1"}, {"3 release 10.0.0.1/32", "1"}, {"3 next", "cooling 30"},
			{"12 next", "cooling 30"}, {"12 fit 31", "cooling 30"}, {"30 fit 30", "full"}, {"30 fit 31", "10.0.0.0/31"},
			{"40 release 10.0.0.0/31", "2"}, {"40 occupy 10.0.0.1/32", "1"}, {"50 fit 32", "10.0.0.0/32"},
		}},
	} {
		m := model.NewCidrSet(model.CidrConfig{Pool: netip.MustParsePrefix(c.pool), Bits: c.bits, Policy: c.policy, Cooldown: c.cooldown})
		for i, step := range c.steps {
			if got := cidrDo(m, step[0]); got != step[1] {
				t.Fatalf("%s: step %d, %s: got %s, want %s", c.pool, i, step[0], got, step[1])
			}
		}
	}
}

func TestSumRunsSaturates(t *testing.T) {
	for _, c := range []struct {
		runs [][2]uint64
		want uint64
	}{
		{nil, 0}, {[][2]uint64{{7, 7}}, 1}, {[][2]uint64{{0, top}}, top}, {[][2]uint64{{1, top}}, top},
		{[][2]uint64{{2, top}}, top - 1}, {[][2]uint64{{0, 1<<63 - 1}, {1 << 63, top}}, top}, {[][2]uint64{{0, 1<<63 - 1}, {1<<63 + 1, top}}, top},
	} {
		if got := model.SumRuns(c.runs); got != c.want {
			t.Errorf("SumRuns(%v) = %d, want %d", c.runs, got, c.want)
		}
	}
}
