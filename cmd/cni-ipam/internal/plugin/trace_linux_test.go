package plugin

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A busy machine and a kill at every place are made here, not hoped for: with traceVar in its
// environment, the program of the tests runs another one and stops it at the entry of its
// system calls.
//
//	kill=N           kill it at the N-th call that concerns files
//	fail=N           fail the N-th call that concerns or reads files with EIO, and say its name in a last line of stderr
//	delay=NAME:TIME  hold it back at each call of that name
//	stretch=SEED     hold it back for up to stretchMost at every third call that concerns files
const traceVar = "CNI_IPAM_TEST_TRACE"

const stretchMost = 8 * time.Millisecond

// fileCalls are the system calls that concern files, by number.
var fileCalls = map[uint64]string{
	unix.SYS_OPENAT: "openat", unix.SYS_CLOSE: "close", unix.SYS_FLOCK: "flock", unix.SYS_MKDIRAT: "mkdirat", unix.SYS_UNLINKAT: "unlinkat",
	unix.SYS_RENAMEAT: "renameat", unix.SYS_RENAMEAT2: "renameat2", unix.SYS_LINKAT: "linkat", unix.SYS_SYMLINKAT: "symlinkat",
	unix.SYS_WRITE: "write", unix.SYS_PWRITE64: "pwrite64", unix.SYS_FTRUNCATE: "ftruncate", unix.SYS_FALLOCATE: "fallocate",
	unix.SYS_FSYNC: "fsync", unix.SYS_FDATASYNC: "fdatasync", unix.SYS_FCHMOD: "fchmod", unix.SYS_FCNTL: "fcntl",
	unix.SYS_GETDENTS64: "getdents64", unix.SYS_READLINKAT: "readlinkat", unix.SYS_EXECVE: "execve", unix.SYS_COPY_FILE_RANGE: "copy_file_range",
}

// readCalls are those that only read.
var readCalls = map[uint64]string{
	unix.SYS_READ: "read", unix.SYS_PREAD64: "pread64", unix.SYS_FSTAT: "fstat", unix.SYS_NEWFSTATAT: "newfstatat", unix.SYS_STATX: "statx",
}

// failedLine begins what the tracer says of a call that it failed.
const failedLine = "\ntrace: failed "

// exitKilled is the exit status of a traced program that was killed.
const exitKilled = 128 + int(syscall.SIGKILL)

func init() {
	if how := os.Getenv(traceVar); how != "" {
		os.Unsetenv(traceVar)
		r := &tracer{how: how}
		code, err := r.run(os.Args[1:])
		if r.failed != "" {
			fmt.Fprintf(os.Stderr, "%s%s", failedLine, r.failed)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "trace:", err)
		}
		os.Exit(code)
	}
}

// traced returns a node whose calls are traced; the test is skipped where that is forbidden.
func (n *node) traced(how string) *node {
	n.Helper()
	m := *n
	m.trace = how
	probe := exec.Command(os.Args[0], "/proc/self/exe")
	probe.Env = []string{traceVar + "=kill=1"}
	if err := probe.Run(); probe.ProcessState.ExitCode() != exitKilled {
		n.Skip("SKIPPED, a process cannot trace another one here:", err)
	}
	return &m
}

// tracer runs one program.
type tracer struct {
	how    string
	calls  int    // seen so far
	failed string // the call that was failed
	closes int    // the thread that is in it
	random *rand.Rand
}

// run returns the exit status of the program.
func (r *tracer) run(args []string) (int, error) {
	runtime.LockOSThread() // the kernel knows the tracer by its thread
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := cmd.Start(); err != nil {
		return 2, err
	}
	pid := cmd.Process.Pid
	var status unix.WaitStatus
	if _, err := unix.Wait4(pid, &status, 0, nil); err != nil {
		return 2, err
	}
	opts := unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACEFORK | unix.PTRACE_O_TRACEVFORK | unix.PTRACE_O_TRACEEXEC | unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_EXITKILL
	if err := unix.PtraceSetOptions(pid, opts); err != nil {
		return 2, err
	}
	for tid, pass := pid, 0; ; {
		if err := unix.PtraceSyscall(tid, pass); err != nil && !errors.Is(err, unix.ESRCH) {
			return 2, err
		}
		for {
			var err error
			if tid, err = unix.Wait4(-1, &status, unix.WALL, nil); err != nil {
				return 2, err
			}
			if status.Stopped() {
				break
			}
			if tid == pid && status.Exited() {
				return status.ExitStatus(), nil
			}
			if tid == pid && status.Signaled() {
				return 128 + int(status.Signal()), nil
			}
		}
		pass = 0
		switch signal := status.StopSignal(); {
		case signal == syscall.SIGTRAP|0x80:
			nr := entered(tid)
			name := fileCalls[nr]
			if r.closes == tid {
				poke(tid, ax, -int64(unix.EIO))
				r.closes = 0
			}
			switch fails := strings.HasPrefix(r.how, "fail="); {
			case fails && name+readCalls[nr] != "":
				r.fail(tid, name+readCalls[nr])
			case !fails && name != "":
				r.act(pid, name)
			}
		case signal != syscall.SIGTRAP && signal != syscall.SIGSTOP:
			pass = int(signal)
		}
	}
}

// entered returns the number of the system call that a thread enters.
func entered(tid int) uint64 {
	var info struct { // ptrace_syscall_info
		op   uint8
		arch uint32
		_    [2]uint64
		nr   uint64
		args [7]uint64
	}
	const getSyscallInfo, entry = 0x420e, 1
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, getSyscallInfo, uintptr(tid), unsafe.Sizeof(info), uintptr(unsafe.Pointer(&info)), 0, 0)
	if errno != 0 || info.op != entry {
		return math.MaxUint64
	}
	return info.nr
}

// fail fails the call that a thread enters, if it is the one that was asked for.
func (r *tracer) fail(tid int, name string) {
	r.calls++
	if n, _ := strconv.Atoi(r.how[len("fail="):]); r.calls != n {
		return
	}
	if r.failed = name; name == "close" { // which fails when it is done
		r.closes = tid
		return
	}
	poke(tid, number, -1)
	poke(tid, ax, -int64(unix.EIO))
}

// Words of user_regs_struct of amd64. A call without a number returns what is in ax.
const ax, number = 8 * 10, 8 * 15

func poke(tid int, at uintptr, value int64) {
	if _, err := unix.PtracePokeUser(tid, at, binary.NativeEndian.AppendUint64(nil, uint64(value))); err != nil {
		panic(err)
	}
}

// act does what was asked for at one call.
func (r *tracer) act(pid int, name string) {
	r.calls++
	how, what, _ := strings.Cut(r.how, "=")
	switch how {
	case "kill":
		if n, _ := strconv.Atoi(what); r.calls == n {
			unix.Kill(pid, unix.SIGKILL)
		}
	case "delay":
		if call, d, _ := strings.Cut(what, ":"); call == name {
			wait, _ := time.ParseDuration(d)
			time.Sleep(wait)
		}
	case "stretch":
		if r.random == nil {
			seed, _ := strconv.Atoi(what)
			r.random = rand.New(rand.NewPCG(uint64(seed), 9))
		}
		if r.random.IntN(3) == 0 {
			time.Sleep(time.Duration(r.random.Int64N(int64(stretchMost))))
		}
	}
}

// TestTracer verifies that the tracer sees the calls of a program and lets it end.
func TestTracer(t *testing.T) {
	n := newNode(t, ours(t))
	c := conf("net", one24)
	if got := n.traced("kill=100000").must(add1("a", c)).addresses(t); !slices.Equal(got, []string{"10.1.2.2/24"}) {
		t.Error(got)
	}
	kills := 0
	for at := 1; ; at++ {
		if a := n.traced(fmt.Sprint("kill=", at)).call(invocation{env: []string{"CNI_COMMAND=VERSION"}}); a.code == 0 {
			break
		} else if a.code != exitKilled {
			t.Fatal(a)
		}
		kills++
	}
	if kills < 3 {
		t.Errorf("killed at %d places", kills)
	}
}
