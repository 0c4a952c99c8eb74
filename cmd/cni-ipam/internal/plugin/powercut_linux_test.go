package plugin

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// load is what a node does between two power cuts.
type load struct {
	*node
	boot int
	mu   sync.Mutex
	held map[string]string // who was given which address in this boot
	down bool              // the power is cut: calls may fail
}

// calls adds attachments to a network, and deletes every third, until the power is cut.
func (l *load) calls(worker int, network, conf string) {
	for i := 0; ; i++ {
		name := fmt.Sprintf("b%d-w%d-%d", l.boot, worker, i)
		a, _ := l.start(add1(name, conf), time.Hour)
		if !l.added(network, name, a, i%3 == 2) {
			return
		}
		if i%3 == 2 {
			a, _ := l.start(del1(name, conf), time.Hour)
			l.mu.Lock()
			if a.code != 0 && !l.down {
				l.Errorf("boot %d, network %s: DEL fails: %s", l.boot, network, a.stdout)
			}
			l.mu.Unlock()
		}
	}
}

// added notes the answer to an ADD and reports whether to go on.
func (l *load) added(network, name string, a answer, short bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down {
		return false
	}
	if a.code != 0 {
		l.Errorf("boot %d, network %s: ADD fails: %s", l.boot, network, a.stdout)
		return false
	}
	key := network + " " + a.addresses(l)[0]
	if l.held[key] != "" {
		l.Errorf("boot %d: %s for %s and %s", l.boot, key, l.held[key], name)
	}
	if l.held[key] = name; short {
		delete(l.held, key)
	}
	return true
}

// run works on networks for a time, and cuts the power of the file system.
func (l *load) run(fs, boot string, networks []string, spell time.Duration) {
	var wg sync.WaitGroup
	for w, network := range networks {
		c := strings.ReplaceAll(conf(network, one24+`,"rebootLeases":true,"bootIDFile":"`+boot+`"`), "%DIR%", fs)
		wg.Add(1)
		go func() {
			defer wg.Done()
			l.calls(w, network, c)
		}()
	}
	time.Sleep(spell)
	l.mu.Lock()
	l.down = true
	l.mu.Unlock()
	const shutdown = 0x8004587d  // FS_IOC_SHUTDOWN
	flag := uint32(1 + l.boot%2) // with and without what the journal has
	d, err := os.Open(fs)
	if err != nil {
		l.Fatal(err)
	}
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, d.Fd(), shutdown, uintptr(unsafe.Pointer(&flag)))
	d.Close()
	wg.Wait()
	if errno != 0 {
		l.Skip("SKIPPED, the file system cannot be shut down:", errno)
	}
}

// command runs a program.
func command(args ...string) error {
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%v: %w: %s", args, err, out)
	}
	return nil
}

// TestPowerCut shuts a file system down under load, as a power cut does, and starts the node
// again under another boot. No network may need a hand: every verb works at once, and within
// a boot no address is given out twice. POWERCUTS sets the number of cuts.
func TestPowerCut(t *testing.T) {
	cuts := 6
	if n, err := strconv.Atoi(os.Getenv("POWERCUTS")); err == nil {
		cuts = n
	} else if testing.Short() {
		cuts = 2
	}
	n := newNode(t, ours(t))
	image, boot, fs := filepath.Join(n.dir, "image"), filepath.Join(n.dir, "boot_id"), filepath.Join(n.dir, "fs")
	if err := errors.Join(os.Mkdir(fs, 0o755), os.WriteFile(image, nil, 0o600), os.Truncate(image, 64<<20)); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"mkfs.ext4", "-q", image}, {"mount", "-o", "loop", image, fs}} {
		if err := command(args...); err != nil {
			t.Skip("SKIPPED, no file system can be mounted here:", err)
		}
	}
	t.Cleanup(func() { syscall.Unmount(fs, 0) })
	afresh := map[string]bool{}
	for cut := range cuts {
		if err := os.WriteFile(boot, []byte(fmt.Sprint("boot-", cut)), 0o600); err != nil {
			t.Fatal(err)
		}
		l := &load{node: n, boot: cut, held: map[string]string{}}
		l.run(fs, boot, []string{"a", "b", fmt.Sprint("c", cut/3), fmt.Sprint("new", cut)}, time.Duration(150+cut*37%400)*time.Millisecond)
		if err := errors.Join(command("umount", fs), command("mount", "-o", "loop", image, fs)); err != nil {
			t.Fatal(err)
		}
		found, _ := filepath.Glob(fs + "/*/" + stateName + ".damaged-*")
		for _, path := range found {
			afresh[path] = true
		}
	}
	t.Logf("%d cuts, %d networks began afresh", cuts, len(afresh))
}
