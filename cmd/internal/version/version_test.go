package version

import (
	"os"
	"path/filepath"
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

// Every image and the build of a release set the variable that Of reads: the linker ignores a name that does not exist.
func TestBuildsStamp(t *testing.T) {
	const flag = "-X github.com/ipalloc/ipalloc/cmd/internal/version.stamped=$VERSION"
	files := []string{"../../../.ci/build"}
	for _, pattern := range []string{"../../*/Dockerfile", "../../*/deploy/Dockerfile"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	if len(files) != 4 {
		t.Errorf("%d builds, want three images and .ci/build: %v", len(files), files)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), flag) {
			t.Errorf("%s does not build with %s", name, flag)
		}
	}
}
