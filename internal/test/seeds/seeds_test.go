package seeds

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// record is a test that only remembers what is said to it.
type record struct {
	testing.TB
	said   []string
	failed bool
}

func (r *record) Helper()                    {}
func (r *record) Failed() bool               { return r.failed }
func (r *record) Logf(f string, args ...any) { r.said = append(r.said, fmt.Sprintf(f, args...)) }
func (r *record) Fatalf(f string, args ...any) {
	r.Logf(f, args...)
	r.failed = true
	runtime.Goexit()
}

// run returns the seeds that are handed out while body does not fail the test, and what is printed.
func run(body func(r *record, seed uint64)) (got []uint64, said []string) {
	r, done := &record{}, make(chan bool)
	go func() {
		defer close(done)
		for seed := range Each(r, 3, 5) {
			got = append(got, seed)
			body(r, seed)
		}
	}()
	<-done
	return got, r.said
}

func TestSeedsAreTheSameEachTime(t *testing.T) {
	t.Setenv(Seed, "")
	want := []uint64{0, 1, 2}
	if !testing.Short() {
		want = []uint64{0, 1, 2, 3, 4}
	}
	got, said := run(func(*record, uint64) {})
	if !slices.Equal(got, want) || len(said) != 0 || Chosen() {
		t.Errorf("%v, %q, chosen %v", got, said, Chosen())
	}
}

func TestOneSeedIsRepeated(t *testing.T) {
	t.Setenv(Seed, "18446744073709551615")
	got, said := run(func(*record, uint64) {})
	if !slices.Equal(got, []uint64{1<<64 - 1}) || len(said) != 0 || !Chosen() {
		t.Errorf("%v, %q, chosen %v", got, said, Chosen())
	}
}

func TestSeedOfAFailedRoundIsPrinted(t *testing.T) {
	t.Setenv(Seed, "")
	for name, body := range map[string]func(r *record, seed uint64){
		"an error": func(r *record, seed uint64) { r.failed = r.failed || seed == 1 },
		"the end": func(r *record, seed uint64) {
			if seed == 1 {
				r.Fatalf("wrong")
			}
		},
	} {
		_, said := run(body)
		if n := strings.Count(strings.Join(said, "\n"), "to repeat: IPALLOC_SEED="); n != 1 || !slices.Contains(said, "to repeat: IPALLOC_SEED=1") {
			t.Errorf("%s: %q", name, said)
		}
	}
}

func TestWrongSeedsAreRefused(t *testing.T) {
	for _, seed := range []string{"x", "-1"} {
		t.Setenv(Seed, seed)
		got, said := run(func(*record, uint64) {})
		if len(got) != 0 || len(said) != 1 || !strings.Contains(said[0], Seed) {
			t.Errorf("%q: %v, %q", seed, got, said)
		}
	}
}
