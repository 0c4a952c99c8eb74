// Package binaries builds the programs that the tests run: this plugin, the plugins of the CNI project
// (ordinary modules, pinned by their checksums) and its command line tool.
package binaries

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

//go:embed modules
var modules embed.FS

// The programs of other projects, and the module below modules that each comes from.
const (
	HostLocal = "host-local"
	Bridge    = "bridge"
	PTP       = "ptp"
	Loopback  = "loopback"
	CNITool   = "cnitool"
)

var sources = map[string]string{HostLocal: "plugins", Bridge: "plugins", PTP: "plugins", Loopback: "plugins", CNITool: "cnitool"}

// ErrUnavailable means that a module cannot be downloaded, for example without a network.
var ErrUnavailable = errors.New("binaries: not to be had here")

// flags build programs as the CNI project releases them: static, without symbols. A program that links to the C library
// takes twice as long to start.
var flags = []string{"-trimpath", "-ldflags=-s -w"}

// ourFlags are flags, with the default directory of networks below dir: no test touches that of the machine. Under the race
// detector the plugin has it too, and reports a race by its exit status.
func ourFlags(dir string) []string {
	return append([]string{flags[0], flags[1] + " -X github.com/ipalloc/ipalloc/cmd/cni-ipam/internal/plugin.defaultDataDir=" + filepath.Join(dir, "networks")}, detector...)
}

func build(dir string, env, flags []string, args ...string) error {
	cmd := exec.Command("go", append(append([]string{"build"}, flags...), args...)...)
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), "CGO_ENABLED=0"), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(cmd.Args[1:], " "), err, out)
	}
	return nil
}

// Ours builds this plugin into a directory under a name and returns its path. It must be called from within the module. forms
// are the versions of records that it writes and reads, if they are not its own.
func Ours(dir, name string, forms ...string) (string, error) {
	path, how := filepath.Join(dir, name), ourFlags(dir)
	for _, f := range forms {
		how[1] += " -X github.com/ipalloc/ipalloc/ipset/hostlocal.forms=" + f
	}
	return path, build("", detectorEnv, how, "-o", path, "github.com/ipalloc/ipalloc/cmd/cni-ipam")
}

// Shared builds this plugin and, beside it, the command for networks that nodes share.
func Shared(dir, name string) (string, error) {
	path, err := Ours(dir, name)
	if err != nil {
		return "", err
	}
	return path, build("", detectorEnv, ourFlags(dir), "-o", filepath.Join(dir, "cni-ipam-etcd"), "github.com/ipalloc/ipalloc/cmd/cni-ipam/cni-ipam-etcd")
}

// Other returns the path of a program of the CNI project. It is built once and kept in the user's cache directory.
//
// ErrUnavailable: its module can't be loaded.
func Other(name string) (string, error) {
	source, ok := sources[name]
	if !ok {
		return "", fmt.Errorf("binaries: unknown program %q", name)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	mod, sum, err := read(source)
	if err != nil {
		return "", err
	}
	key := sha256.Sum256([]byte(strings.Join(append(flags, string(mod), string(sum), runtime.Version(), runtime.GOOS, runtime.GOARCH), "\x00")))
	dir := filepath.Join(cache, "ipalloc", "cni-"+source+"-"+hex.EncodeToString(key[:6]))
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return path, err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	temp, err := os.MkdirTemp(filepath.Dir(dir), "build-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(temp)
	if err := buildModule(temp, mod, sum); err != nil {
		return "", err
	}
	// Whoever comes first gives the directory its name; the others find the same in it.
	if err := os.Rename(filepath.Join(temp, "bin"), dir); err != nil && !errors.Is(err, fs.ErrExist) {
		if _, there := os.Stat(path); there != nil {
			return "", err
		}
	}
	return path, nil
}

func read(source string) (mod, sum []byte, err error) {
	if mod, err = modules.ReadFile("modules/" + source + ".mod.txt"); err != nil {
		return nil, nil, err
	}
	sum, err = modules.ReadFile("modules/" + source + ".sum.txt")
	return mod, sum, err
}

// buildModule builds all tools of a module into bin.
func buildModule(dir string, mod, sum []byte) error {
	for name, content := range map[string][]byte{"go.mod": mod, "go.sum": sum} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			return err
		}
	}
	env := []string{"GOWORK=off", "GOFLAGS=-mod=readonly"}
	download := exec.Command("go", "mod", "download")
	download.Dir = dir
	download.Env = append(os.Environ(), env...)
	if out, err := download.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: go mod download: %w\n%s", ErrUnavailable, err, out)
	}
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o755); err != nil {
		return err
	}
	return build(dir, env, flags, "-o", "bin", "tool")
}
