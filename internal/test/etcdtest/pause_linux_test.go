//go:build go1.26

package etcdtest

import "testing"

func TestPauseReturnsWhenNothingMoves(t *testing.T) {
	guard(t)
	m := New(t, Config{NoSync: true}).Members()[0]
	for range 200 { // a signal mostly takes effect at once
		if err := m.Pause(); err != nil {
			t.Fatal(err)
		}
		if !still(m.PID()) {
			t.Fatal("a thread runs")
		}
		if err := m.Resume(); err != nil {
			t.Fatal(err)
		}
	}
}
