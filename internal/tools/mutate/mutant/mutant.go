// Package mutant switches mutants on. Command mutate adds it to the build of an
// instrumented copy; nothing else imports it.
//
// The environment variable MUTANT holds the number of the mutant that is on. If
// MUTANT_RECORD names a file, every mutant is off, and the number of each mutant
// reached is appended to that file.
package mutant

import (
	"context"
	"fmt"
	"os"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxSteps ends a process that reaches its mutant this often, because only an endless
	// loop does in a short test.
	maxSteps = 100_000_000

	// maxBytes ends a process whose memory a mutant makes grow without bound.
	maxBytes = 3 << 30
)

var (
	on       = number()
	steps    atomic.Int64
	record   = open()
	recorded sync.Map
)

func number() int {
	n, err := strconv.Atoi(os.Getenv("MUTANT"))
	if err != nil {
		return -1
	}
	go watch()
	return n
}

func open() *os.File {
	name := os.Getenv("MUTANT_RECORD")
	if name == "" {
		return nil
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		panic(err)
	}
	return f
}

// watch ends the process when it uses more than maxBytes.
func watch() {
	sample := []metrics.Sample{{Name: "/memory/classes/total:bytes"}}
	for {
		time.Sleep(100 * time.Millisecond)
		if metrics.Read(sample); sample[0].Value.Uint64() > maxBytes {
			end("too much memory")
		}
	}
}

func end(reason string) {
	fmt.Fprintln(os.Stderr, "mutant:", reason)
	os.Exit(3)
}

// On reports whether the mutant with number id is on.
func On(id int) bool {
	if id == on {
		if steps.Add(1) > maxSteps {
			end("too many steps")
		}
		return true
	}
	if record != nil {
		reach(id)
	}
	return false
}

// Off is the opposite of On.
func Off(id int) bool { return !On(id) }

func reach(id int) {
	if _, loaded := recorded.LoadOrStore(id, true); !loaded {
		if _, err := fmt.Fprintln(record, id); err != nil {
			panic(err)
		}
	}
}

// Zero returns the zero value if the mutant is on, and v otherwise.
func Zero[T any](id int, v T) T {
	if On(id) {
		var zero T
		return zero
	}
	return v
}

// Context returns a context that never ends if the mutant is on.
func Context(id int, ctx context.Context) context.Context {
	if On(id) {
		return context.Background()
	}
	return ctx
}

// Unwrap returns a format that wraps nothing if the mutant is on.
func Unwrap(id int, format string) string {
	if On(id) {
		return strings.ReplaceAll(format, "%w", "%v")
	}
	return format
}

// Integer is the operand type of the mutated arithmetic.
type Integer interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uintptr
}

// Const returns mutated if the mutant is on, and value otherwise.
func Const[T Integer](id int, value, mutated T) T {
	if On(id) {
		return mutated
	}
	return value
}

// Arith returns a op b, or a mutated b if the mutant is on.
func Arith[T Integer](id int, op, mutated byte, a, b T) T {
	if On(id) {
		op = mutated
	}
	switch op {
	case '+':
		return a + b
	case '-':
		return a - b
	case '*':
		return a * b
	case '/':
		return a / b
	case '%':
		return a % b
	case '&':
		return a & b
	case '|':
		return a | b
	}
	panic("mutant: no such operator")
}

// Shift returns a << n if left is true, and a >> n otherwise; a mutant that is on
// reverses the direction.
func Shift[T, N Integer](id int, left bool, a T, n N) T {
	if left != On(id) {
		return a << n
	}
	return a >> n
}
