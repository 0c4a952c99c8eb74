package version

import (
	"os"
	"runtime/debug"
	"strings"
	"testing"
)

func TestOf(t *testing.T) {
	build := func(module string, settings ...debug.BuildSetting) *debug.BuildInfo {
		return &debug.BuildInfo{Main: debug.Module{Version: module}, Settings: settings}
	}
	commit, dirty := debug.BuildSetting{Key: "vcs.revision", Value: "abc"}, debug.BuildSetting{Key: "vcs.modified", Value: "true"}
	for _, c := range []struct {
		stamped string
		info    *debug.BuildInfo
		want    string
	}{
		{"v1.2.3", build("v1.0.0", commit), "v1.2.3"},
		{"", build("v1.0.0", commit), "v1.0.0"},
		{"", build("(devel)", commit), "abc"},
		{"", build("(devel)", dirty, commit), "abc+dirty"},
		{"", build("(devel)"), "unknown"},
		{"", build(""), "unknown"},
	} {
		if got := of(c.stamped, c.info); got != c.want {
			t.Errorf("stamped %q, module %q, %v: got %s, want %s", c.stamped, c.info.Main.Version, c.info.Settings, got, c.want)
		}
	}
}

// The build of a release, which the images hold, sets the variable that Of reads: the linker ignores a name that does not exist.
func TestBuildsStamp(t *testing.T) {
	text, err := os.ReadFile("../../../.ci/build")
	if err != nil {
		t.Fatal(err)
	}
	if flag := "-X github.com/ipalloc/ipalloc/cmd/internal/version.stamped=$VERSION"; !strings.Contains(string(text), flag) {
		t.Errorf(".ci/build does not build with %s", flag)
	}
}
