// Package version tells which build of a program runs.
package version

import (
	"cmp"
	"runtime/debug"
)

// stamped is the version that a build sets, because the go command records none in a workspace:
//
//	go build -ldflags "-X github.com/ipalloc/ipalloc/cmd/internal/version.stamped=v0.1.0"
var stamped string

// Of returns the version of the running program and the version of Go. The first is the version that the build has set, else
// the module's version, else the commit, with "+dirty" if files differed from it.
func Of() (program, goVersion string) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{GoVersion: "unknown"}
	}
	return of(stamped, info), info.GoVersion
}

func of(stamped string, info *debug.BuildInfo) string {
	commit, dirty := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "+dirty"
		}
	}
	if commit != "" {
		commit += dirty
	}
	module := info.Main.Version
	if module == "(devel)" {
		module = ""
	}
	return cmp.Or(stamped, module, commit, "unknown")
}
