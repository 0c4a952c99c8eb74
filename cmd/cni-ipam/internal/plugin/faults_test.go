//go:build unix

package plugin

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestReboot: what another boot id does to addresses, with and without leases.
func TestReboot(t *testing.T) {
	n := newNode(t, ours(t))
	boot := func(id string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(n.dir, "boot_id"), []byte(id+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	plain := conf("net", one24+`,"bootIDFile":"%DIR%/boot_id"`)
	leases := conf("net", one24+`,"bootIDFile":"%DIR%/boot_id","rebootLeases":true`)
	boot("one")
	n.must(add1("a", plain))
	boot("two")
	n.fails(add1("a", plain), 999, "duplicate allocation") // as host-local
	n.must(add1("b", plain))
	n.must(invocation{verb: "CHECK", container: "b", ifname: "eth0", conf: leases}) // a is gone, b is of this boot
	n.fails(invocation{verb: "CHECK", container: "a", ifname: "eth0", conf: leases}, 999, "Failed to find")
	if got := n.must(add1("a", leases)).addresses(t); got[0] != "10.1.2.4/24" {
		t.Fatal(got)
	}
	boot("three")
	if got := n.must(add1("b", leases)).addresses(t); got[0] != "10.1.2.5/24" {
		t.Fatal(got)
	}
	if s := n.state("net"); len(s.Holdings) != 1 {
		t.Fatal(s)
	}
	n.fails(add1("c", conf("net", one24+`,"bootIDFile":"%DIR%/none","rebootLeases":true`)), 7, "no such file")
	n.must(add1("c", conf("net", one24+`,"bootIDFile":"%DIR%/none"`)))
}

// put writes a file.
func (n *node) put(path, content string) {
	n.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		n.Fatal(err)
	}
}

// damage overwrites a state file and returns what is in it then.
func (n *node) damage(path, kind string) string {
	n.Helper()
	good, err := os.ReadFile(path)
	if err != nil {
		n.Fatal(err)
	}
	bad := map[string]string{
		"garbage": strings.Repeat("garbage ", len(good)/8), "empty": "", "cut": string(good[:len(good)/3]),
		"another database": "SQLite format 3\x00" + strings.Repeat("\x00", 4096),
	}[kind]
	n.put(path, bad)
	return bad
}

// TestDamage: a damaged state is refused in the boot of the damage. After another boot, or
// if the boot is unknown, it is set aside unless the configuration refuses that.
func TestDamage(t *testing.T) {
	for _, kind := range []string{"garbage", "empty", "cut", "another database"} {
		t.Run(kind, func(t *testing.T) {
			n := newNode(t, ours(t))
			boot := filepath.Join(n.dir, "boot_id")
			n.put(boot, "one")
			ipam := one24 + `,"bootIDFile":"%DIR%/boot_id"`
			plain, refuse := conf("net", ipam), conf("net", ipam+`,"refuseDamaged":true`)
			n.must(add1("a", plain))
			n.must(add1("b", plain))
			state := filepath.Join(n.dir, "net", stateName)
			bad := n.damage(state, kind)
			// In the boot of the damage, what the state held may be alive.
			for _, verb := range []string{"ADD", "DEL", "CHECK"} {
				n.fails(invocation{verb: verb, container: "a", ifname: "eth0", conf: plain}, 5, "drain the node and reboot")
			}
			n.fails(invocation{conf: plain, env: []string{"CNI_COMMAND=STATUS", "CNI_PATH=/x"}}, 50, "drain the node and reboot")
			n.fails(add1("c", refuse), 5, "drain the node and reboot")
			if a := n.word("show"); a.code != 1 {
				t.Fatal(a)
			}
			if a := n.word("export"); a.code != 1 || !strings.Contains(a.stderr, "drain the node") {
				t.Fatal(a)
			}
			n.put(boot, "two")
			if lost := kind == "garbage" || kind == "cut"; lost { // a crash of the machine may have lost the boot, too
				if err := os.Remove(filepath.Join(n.dir, "net", bootName)); err != nil {
					t.Fatal(err)
				}
			}
			n.fails(add1("c", refuse), 5, "ipam.refuseDamaged")
			if a := n.must(del1("a", refuse)); !strings.Contains(a.stderr, "released nothing") {
				t.Fatal(a)
			}
			if now, err := os.ReadFile(state); err != nil || string(now) != bad {
				t.Fatal("the damaged file was changed")
			}
			// A DEL is mostly the first call after a boot.
			first := n.must(del1("a", plain))
			if !strings.Contains(first.stderr, "ERROR: the state of network net is lost and set aside as") {
				t.Fatal(first)
			}
			if got := n.must(add1("c", plain)).addresses(t); got[0] != "10.1.2.2/24" {
				t.Fatal(got)
			}
			aside, err := filepath.Glob(state + ".damaged-*")
			if err != nil || len(aside) != 1 {
				t.Fatal(aside, err)
			}
			if kept, err := os.ReadFile(aside[0]); err != nil || string(kept) != bad {
				t.Fatal("what was set aside is not what was there")
			}
			n.must(add1("d", plain))
			if s := n.state("net"); len(s.Holdings) != 2 {
				t.Fatal(s)
			}
		})
	}
}

// TestBusy: a lock that is not given back in time.
func TestBusy(t *testing.T) {
	path := filepath.Join(t.TempDir(), lockName)
	f, err := lockFile(path, false, true, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lockFile(path, false, true, 1); !errors.Is(err, errBusy) || asError(err).Code != 11 {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	// Whoever waited too long may have it for a moment.
	if f, err = lockFile(path, false, true, time.Minute); err != nil {
		t.Fatal(err)
	}
	f.Close()
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatal(info, err)
	}
}

// TestNotADirectory: the data directory can't be made.
func TestNotADirectory(t *testing.T) {
	n := newNode(t, ours(t))
	if err := os.WriteFile(filepath.Join(n.dir, "net"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	n.fails(add1("a", conf("net", one24)), 5, "not a directory")
	n.must(add1("a", conf("net2", one24)))
	if got := n.ls("net2"); !slices.Contains([]bool{got[stateName]}, true) || got["10.1.2.2"] {
		t.Fatal(got)
	}
	if s := n.state("net2").Holdings; len(s) != 1 || s[0].Attachment.Container != "a" || fmt.Sprint(s[0].Addresses) != "[10.1.2.2]" {
		t.Fatal(s)
	}
}

// TestLocksOfOthers: no lock on anything that another user can open stops a call, whatever
// the umask of the runtime is.
func TestLocksOfOthers(t *testing.T) {
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	n := newNode(t, ours(t))
	c := conf("net", one24)
	n.must(add1("a", c))
	dir := filepath.Join(n.dir, "net")
	open := []string{dir}
	for name := range n.ls("net") {
		info, err := os.Lstat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode()&os.ModeSymlink == 0 && info.Mode().Perm()&0o077 != 0 {
			open = append(open, filepath.Join(dir, name))
		}
	}
	for _, path := range open {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
			t.Fatal(err)
		}
	}
	if _, killed := n.start(add1("b", c), 20*time.Second); killed {
		t.Errorf("a lock on one of %q stops a call", open)
	}
}

// TestStatusOfAnEmptyNetwork: a range whose only address is its gateway has none to give,
// before the first ADD too.
func TestStatusOfAnEmptyNetwork(t *testing.T) {
	n := newNode(t, ours(t))
	none := `"ranges":[[{"subnet":"10.1.2.0/24","rangeStart":"10.1.2.1","rangeEnd":"10.1.2.1"}]]`
	n.must(invocation{verb: "STATUS", conf: conf("net", none)})
	n.must(invocation{verb: "STATUS", conf: conf("net", one24+`,"statusFull":true`)})
	n.fails(invocation{verb: "STATUS", conf: conf("net", none+`,"statusFull":true`)}, 50, "no IP addresses available")
}
