package boltstore

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// lockHolder returns a process that has a lock on a file, and its name; 0 if that can't be told. The kernel lists every lock:
//
//	1: FLOCK  ADVISORY  WRITE 1234 fe:00:131090 0 EOF
func lockHolder(f *os.File) (pid int, name string) {
	info, err := f.Stat()
	if err != nil {
		return 0, ""
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, ""
	}
	locks, err := os.Open("/proc/locks")
	if err != nil {
		return 0, ""
	}
	defer locks.Close()
	dev := uint64(st.Dev)
	major, minor := dev>>8&0xfff|dev>>32&^uint64(0xfff), dev&0xff|dev>>12&^uint64(0xff)
	where := fmt.Sprintf("%02x:%02x:%d", major, minor, st.Ino)
	for s := bufio.NewScanner(locks); s.Scan(); {
		words := strings.Fields(s.Text())
		if len(words) < 6 || words[1] != "FLOCK" || words[5] != where {
			continue
		}
		if pid, err = strconv.Atoi(words[4]); err != nil || pid <= 0 {
			return 0, ""
		}
		comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		return pid, strings.TrimSpace(string(comm))
	}
	return 0, ""
}
