package main

import (
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
	image, boot := filepath.Join(n.dir, "image"), filepath.Join(n.dir, "boot_id")
	fs := filepath.Join(n.dir, "fs")
	command := func(args ...string) error {
		out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%v: %w: %s", args, err, out)
		}
		return nil
	}
	if err := os.Mkdir(fs, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 64<<20); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"mkfs.ext4", "-q", image}, {"mount", "-o", "loop", image, fs}} {
		if err := command(args...); err != nil {
			t.Skip("SKIPPED, no file system can be mounted here:", err)
		}
	}
	t.Cleanup(func() { syscall.Unmount(fs, 0) })
	lost, set := 0, map[string]bool{}
	for cut := range cuts {
		if err := os.WriteFile(boot, []byte(fmt.Sprint("boot-", cut)), 0o600); err != nil {
			t.Fatal(err)
		}
		networks := []string{"a", "b", fmt.Sprint("c", cut/3), fmt.Sprint("new", cut)}
		var mu sync.Mutex
		held := map[string]string{}
		down := false
		var wg sync.WaitGroup
		for w, network := range networks {
			wg.Add(1)
			go func() {
				defer wg.Done()
				c := strings.ReplaceAll(conf(network, one24+`,"rebootLeases":true,"bootIDFile":"`+boot+`"`), "%DIR%", fs)
				for i := 0; ; i++ {
					name := fmt.Sprintf("b%d-w%d-%d", cut, w, i)
					a, _ := n.start(add1(name, c), time.Hour)
					mu.Lock()
					late := down
					if a.code != 0 && !late {
						t.Errorf("cut %d, network %s: ADD fails: %s", cut, network, a.stdout)
						late = true
					}
					if a.code == 0 && !late {
						key := network + " " + a.addresses(t)[0]
						if held[key] != "" {
							t.Errorf("cut %d: %s for %s and %s", cut, key, held[key], name)
						}
						held[key] = name
						if i%3 == 2 {
							delete(held, key)
						}
					}
					mu.Unlock()
					if late {
						return
					}
					if i%3 == 2 {
						if a, _ := n.start(del1(name, c), time.Hour); a.code != 0 {
							mu.Lock()
							if !down {
								t.Errorf("cut %d, network %s: DEL fails: %s", cut, network, a.stdout)
							}
							mu.Unlock()
						}
					}
				}
			}()
		}
		time.Sleep(time.Duration(150+cut*37%400) * time.Millisecond)
		mu.Lock()
		down = true
		mu.Unlock()
		const shutdown = 0x8004587d // FS_IOC_SHUTDOWN
		flag := uint32(1 + cut%2)   // with and without what the journal has
		d, err := os.Open(fs)
		if err != nil {
			t.Fatal(err)
		}
		_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, d.Fd(), shutdown, uintptr(unsafe.Pointer(&flag)))
		d.Close()
		wg.Wait()
		if errno != 0 {
			t.Skip("SKIPPED, the file system cannot be shut down:", errno)
		}
		if err := command("umount", fs); err != nil {
			t.Fatal(err)
		}
		if err := command("mount", "-o", "loop", image, fs); err != nil {
			t.Fatal(err)
		}
		found, _ := filepath.Glob(fs + "/*/" + stateName + ".damaged-*")
		for _, path := range found {
			if !set[path] {
				set[path] = true
				lost++
			}
		}
	}
	t.Logf("%d cuts, %d networks began afresh", cuts, lost)
}
