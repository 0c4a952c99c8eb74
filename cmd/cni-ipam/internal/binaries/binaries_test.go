package binaries

import (
	"errors"
	"os/exec"
	"testing"
)

func TestOther(t *testing.T) {
	for name := range sources {
		path, err := Other(name)
		if errors.Is(err, ErrUnavailable) {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := exec.LookPath(path); err != nil {
			t.Fatal(err)
		}
		again, err := Other(name)
		if err != nil || again != path {
			t.Fatal(again, err)
		}
	}
	if _, err := Other("nothing"); err == nil {
		t.Fatal("there is no such program")
	}
}
