package plugin

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/ipalloc/ipalloc/cmd/cni-ipam/internal/binaries"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// TestExportRepeated: an export of a network that host-local has already leaves the lock of
// host-local alone, whether a call holds it or not, and the guard of an import.
func TestExportRepeated(t *testing.T) {
	original := newNode(t, other(t, binaries.HostLocal))
	slow := original.traced("delay=flock:400ms")
	mine := &node{TB: t, dir: original.dir, bin: ours(t)}
	given := func(network string) string {
		c := conf(network, one24)
		mine.must(add1("a", c))
		mine.must(add1("b", c))
		mine.mustWord(network+": wrote back 2 attachments\n", "export", network)
		original.must(invocation{verb: "CHECK", container: "b", ifname: "eth0", conf: c}) // makes the lock file
		return c
	}
	for i, late := range []invocation{add1("late", ""), del1("b", "")} {
		network := fmt.Sprint("net", i)
		late.conf = given(network)
		lock, err := os.Stat(filepath.Join(mine.dir, network, guardName))
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan answer, 1)
		go func() { a, _ := slow.start(late, time.Hour); done <- a }()
		original.waitForOpen(network)
		mine.mustWord("there is no network of this plugin in "+mine.dir+"\n", "export", network)
		if now, err := os.Stat(filepath.Join(mine.dir, network, guardName)); err != nil || !os.SameFile(lock, now) {
			t.Fatalf("the lock file of host-local was replaced: %v", err)
		}
		if a := mine.takeOver(network); a.code != 0 {
			t.Fatal(a)
		}
		told := map[string]string{"a": "10.1.2.2/24", "b": "10.1.2.3/24", "x": mine.first("x", late.conf)}
		if a := <-done; a.code != 0 {
			t.Fatal(a)
		} else if late.verb == "ADD" {
			told["late"] = a.addresses(t)[0]
		} else {
			delete(told, "b")
		}
		if got := mine.holders(network, 24); !maps.Equal(got, told) {
			t.Errorf("%s: %v are held, and the callers were told %v", late.verb, got, told)
		}
	}
	// An import while an export is about to remove what it found.
	c := given("both")
	export := *mine
	export.trace = "delay=unlinkat:300ms"
	done := make(chan answer, 1)
	go func() { done <- export.word("export", "both") }()
	time.Sleep(100 * time.Millisecond)
	if a := mine.takeOver("both"); a.code != 0 {
		t.Fatal(a)
	}
	if a := <-done; a.code != 0 {
		t.Fatal(a)
	}
	if a := original.call(del1("b", c)); mine.place("both").guarded() != (a.code != 0) {
		t.Errorf("guarded %v, host-local answers %+v", mine.place("both").guarded(), a)
	}
}

// TestExportOfTheOriginals: a network that this plugin never had, or of which only its lock is left,
// is left alone.
func TestExportOfTheOriginals(t *testing.T) {
	n := newNode(t, other(t, binaries.HostLocal))
	c := conf("net", one24)
	n.must(add1("a", c))
	for range 2 {
		before := fingerprint(t, n.dir)
		for _, args := range [][]string{{"export"}, {"export", "net"}, {"export", "-n"}} {
			n.mustWord("there is no network of this plugin in "+n.dir+"\n", args...)
		}
		if after := fingerprint(t, n.dir); !slices.Equal(after, before) {
			t.Errorf("changed to\n%s", strings.Join(after, "\n"))
		}
		n.put(filepath.Join(n.dir, "net", lockName), "")
	}
	n.bin = ours(t)
	n.must(del1("a", c))
	n.mustWord("net: ok, 0 attachments\n", "check")
}

// rewrite replaces the values of the records of a network's state.
func (n *node) rewrite(network string, value func(was string) string) {
	n.Helper()
	db, err := boltstore.Open(n.Context(), filepath.Join(n.dir, network, stateName), boltstore.Options{})
	if err != nil {
		n.Fatal(err)
	}
	defer db.Close()
	recs, _, err := db.List(n.Context(), store.Range{From: "L", To: "M"})
	for _, r := range recs {
		if err == nil {
			_, err = db.Commit(n.Context(), []store.Op{{Kind: store.Put, Key: r.Key, Value: value(r.Value), Expect: r.Rev}})
		}
	}
	if err != nil || len(recs) == 0 {
		n.Fatal(recs, err)
	}
}

// inVersion rewrites the records of a network's state in a version of its form.
func (n *node) inVersion(network string, version byte) {
	n.Helper()
	n.rewrite(network, func(was string) string { return string(version) + was[1:] })
}

// TestNeighbourVersions: a state that the version before or after this one wrote is named, and
// neither read nor replaced, by any call or word, in any boot.
func TestNeighbourVersions(t *testing.T) {
	const present = 1
	for _, version := range []byte{4, present + 1} { // 4 is that of the last edition before version 1
		n := newNode(t, ours(t))
		boot := filepath.Join(n.dir, "boot_id")
		n.put(boot, "one")
		c := conf("net", one24+`,"bootIDFile":"%DIR%/boot_id"`)
		for _, name := range []string{"a", "b", "c"} {
			n.must(add1(name, c))
		}
		n.inVersion("net", version)
		path := filepath.Join(n.dir, "net", stateName)
		before, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("has version %d, and this program reads version %d: use the program that wrote it", version, present)
		keep := filepath.Join(t.TempDir(), "keep")
		n.put(keep, "a\nb\n# end\n")
		for _, now := range []string{"one", "two"} {
			n.put(boot, now)
			for _, verb := range []string{"ADD", "DEL", "CHECK"} {
				n.fails(invocation{verb: verb, container: "a", ifname: "eth0", conf: c}, 5, want)
			}
			n.fails(invocation{verb: "STATUS", conf: c}, 50, want)
			for _, args := range [][]string{{"show"}, {"check"}, {"export", "-n"}, {"export"}, {"gc", "-keep", keep, "net"}, {"gc", "net", "a"}, {"install", n.originals()}} {
				if a := n.word(args...); a.code != 1 || !strings.Contains(a.stderr, want) {
					t.Errorf("version %d: %v: %+v", version, args, a)
				}
			}
			if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
				t.Fatalf("version %d: the state was changed, %v", version, err)
			}
		}
		n.inVersion("net", present)
		n.mustWord("net: ok, 3 attachments\n", "check")
	}
}

// shutDown cuts the power of a file system, and starts it again.
func shutDown(t *testing.T, image, fs string) {
	t.Helper()
	d, err := os.Open(fs)
	if err != nil {
		t.Fatal(err)
	}
	nothing := uint32(2) // of what the journal has not on the disk yet
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, d.Fd(), 0x8004587d, uintptr(unsafe.Pointer(&nothing)))
	d.Close()
	if errno != 0 {
		t.Skip("SKIPPED, the file system cannot be shut down:", errno)
	}
	if err := errors.Join(command("umount", fs), command("mount", "-o", "loop", image, fs)); err != nil {
		t.Fatal(err)
	}
}

// mounted returns an ext4 file system of a size, and its image.
func mounted(t *testing.T, size int64) (image, fs string) {
	t.Helper()
	dir := t.TempDir()
	image, fs = filepath.Join(dir, "image"), filepath.Join(dir, "fs")
	if err := errors.Join(os.Mkdir(fs, 0o755), os.WriteFile(image, nil, 0o600), os.Truncate(image, size)); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"mkfs.ext4", "-q", "-F", "-m", "0", image}, {"mount", "-o", "loop", image, fs}} {
		if err := command(args...); err != nil {
			t.Skip("SKIPPED, no file system can be mounted here:", err)
		}
	}
	t.Cleanup(func() { syscall.Unmount(fs, 0) })
	return image, fs
}

// TestPowerCutOnTheWayBack: the power is cut at any moment of an export or an uninstall, when it has
// just ended, and when the state has just gone. Every attachment is there, in the one form or the
// other, and the word repeated ends with all of them, and the original, in place.
func TestPowerCutOnTheWayBack(t *testing.T) {
	cuts, held := 8, 60
	if testing.Short() {
		cuts = 3
	}
	image, fs := mounted(t, 64<<20)
	original := &node{TB: t, dir: fs, bin: other(t, binaries.HostLocal)}
	mine := &node{TB: t, dir: fs, bin: ours(t)}
	plugins := filepath.Join(fs, "plugins")
	dest := filepath.Join(plugins, pluginName)
	if err := errors.Join(os.Mkdir(plugins, 0o755), copyFile(original.bin, dest)); err != nil {
		t.Fatal(err)
	}
	for cut := range cuts {
		network := fmt.Sprint("net", cut)
		c := conf(network, one24)
		for i := range held {
			mine.must(add1(fmt.Sprint("c", i), c))
		}
		word := []string{"export", network}
		if cut%2 == 0 && cut > 0 {
			word = []string{"uninstall", plugins}
			mine.mustWord(dest+": installed\n", "install", plugins)
		}
		if err := command("sync", "-f", fs); err != nil {
			t.Fatal(err)
		}
		done := make(chan answer, 1)
		export := *mine
		export.trace = "stretch=1"
		switch cut {
		case 0:
			export.trace = ""
		case 1:
			export.trace = "delay=unlinkat:700ms" // so that the next sync is far away
		}
		go func() { done <- export.word(word...) }()
		switch cut {
		case 0: // the word has ended
			if a := <-done; a.code != 0 {
				t.Fatal(a)
			}
		case 1: // the state has just gone, and the journal says so
			for mine.place(network).exists(stateName) {
				time.Sleep(time.Millisecond)
			}
			f, err := os.Create(filepath.Join(fs, "journal"))
			if err != nil || f.Sync() != nil || f.Close() != nil {
				t.Fatal(err)
			}
			mine.stopWrites(fs)
			<-done
		default:
			time.Sleep(time.Duration(cut*97%800) * time.Millisecond)
			mine.stopWrites(fs)
			<-done
		}
		shutDown(t, image, fs)
		if cut == 0 {
			mine.mustWord("there is no network of this plugin in "+mine.dir+"\n", "export", network)
		} else if a := mine.word(word...); a.code != 0 {
			t.Fatalf("cut %d: %+v", cut, a)
		}
		if theirs, err := isTheirs(dest); err != nil || !theirs {
			t.Errorf("cut %d: host-local is not in place: %v", cut, err)
		}
		if got := original.files(network).Holdings; len(got) != held {
			t.Errorf("cut %d: %d of %d attachments are left", cut, len(got), held)
		}
		for i := range held {
			original.must(del1(fmt.Sprint("c", i), c))
		}
		if got := original.legacyContent(network); len(got) != 1 { // where the set goes on
			t.Errorf("cut %d: %v", cut, got)
		}
	}
}

// stopWrites cuts the power of a file system, which stays as it is until it is mounted anew.
func (n *node) stopWrites(fs string) {
	n.Helper()
	d, err := os.Open(fs)
	if err != nil {
		n.Fatal(err)
	}
	nothing := uint32(2)
	syscall.Syscall(syscall.SYS_IOCTL, d.Fd(), 0x8004587d, uintptr(unsafe.Pointer(&nothing)))
	d.Close()
}

// TestFullDiskAtTakeover: without room for a state, DEL still releases what host-local added, and
// host-local is not locked out by a takeover that could not begin.
func TestFullDiskAtTakeover(t *testing.T) {
	for _, free := range []int64{0, 4, 16, 32, 64, 128} {
		_, fs := mounted(t, 8<<20)
		original := &node{TB: t, dir: fs, bin: other(t, binaries.HostLocal)}
		mine := &node{TB: t, dir: fs, bin: ours(t)}
		c := conf("net", one24)
		const held = 30
		for i := range held {
			original.must(add1(fmt.Sprint("c", i), c))
		}
		fill := filepath.Join(fs, "fill")
		command("dd", "if=/dev/zero", "of="+fill, "bs=4k")
		if info, err := os.Stat(fill); err != nil || os.Truncate(fill, info.Size()-free<<10) != nil || command("sync", "-f", fs) != nil {
			t.Fatal(info, err)
		}
		original.must(del1("c0", c))
		for i := 1; i < held-1; i++ {
			if a := mine.call(del1(fmt.Sprint("c", i), c)); a.code != 0 {
				t.Fatalf("%d KiB free: DEL of c%d: %s%s", free, i, a.stdout, a.stderr)
			}
		}
		if err := os.Remove(fill); err != nil {
			t.Fatal(err)
		}
		if got := mine.first("new", c); got != "10.1.2.32/24" {
			t.Errorf("%d KiB free: %s", free, got)
		}
		mine.mustWord("net: ok, 2 attachments\n", "check")
	}
}
