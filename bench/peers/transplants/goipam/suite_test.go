//go:build transplant

package ipam

import (
	"os"
	"testing"
)

// TestMain runs the tests where the corpus of their fuzz target is.
func TestMain(m *testing.M) {
	if err := os.Chdir(os.Getenv("TRANSPLANT_DIR")); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// testWithBackends runs a test on the memory store, and asks both packages afterwards whether all is in order.
func testWithBackends(t *testing.T, f func(*testing.T, *ipamer)) {
	t.Run("Memory", func(t *testing.T) {
		st := NewMemory(t.Context()).(storage)
		f(t, &ipamer{storage: st})
		names, err := st.ListNamespaces(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			s, err := st.space(name)
			if err != nil {
				t.Fatal(err)
			}
			if report, err := s.Check(t.Context()); err != nil || len(report.Problems) > 0 {
				t.Errorf("prefixes: %v, %v", report, err)
			}
			if report, err := s.engine.Operator().Check(t.Context(), nil); err != nil || len(report.Problems) > 0 {
				t.Errorf("ipset: %v, %v", report, err)
			}
		}
	})
}
