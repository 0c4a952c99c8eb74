package invariant

import "testing"

func TestStepsFollowTheBuildTag(t *testing.T) {
	before := Steps()
	Step(3)
	want := before
	if Enabled {
		want += 3
	}
	if got := Steps(); got != want {
		t.Fatalf("Steps() = %d after Step(3) from %d, want %d (Enabled = %v)", got, before, want, Enabled)
	}
}

func TestAssertPanicsOnlyWhenEnabled(t *testing.T) {
	defer func() {
		if got := recover() != nil; got != Enabled {
			t.Fatalf("Assert(false) panicked: %v, want %v", got, Enabled)
		}
	}()
	Assert(true, "a true condition must never panic")
	Assert(false, "count is %d", 1)
}
