package plugin

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc/cmd/cni-ipam/internal/binaries"
)

// BenchmarkBeside measures this plugin and the real host-local from the start of a process to its exit, which is what a runtime
// waits for.
func BenchmarkBeside(b *testing.B) {
	for _, held := range []int{0, 150, 64880} {
		for _, name := range []string{binaries.HostLocal, "cni-ipam"} {
			b.Run(fmt.Sprintf("held=%d/%s", held, name), func(b *testing.B) { besideVerbs(b, besideNode(b, name, held)) })
		}
	}
	for _, name := range []string{binaries.HostLocal, "cni-ipam"} {
		n := besideNode(b, name, 0)
		b.Run("first/"+name, func(b *testing.B) {
			before := processTime()
			for i := 0; b.Loop(); i++ {
				n.must(add1("first", conf(fmt.Sprint("first", b.N, "-", i), one24)))
			}
			b.ReportMetric(float64((processTime()-before).Microseconds())/float64(b.N), "cpu-us/ADD")
		})
		b.Run("200 at once/"+name, func(b *testing.B) {
			before := processTime()
			for i := 0; b.Loop(); i++ {
				var wg sync.WaitGroup
				for c := range 200 {
					wg.Go(func() {
						n.start(add1(fmt.Sprint("c", c), conf(fmt.Sprint("many", b.N, "-", i), `"ranges":[[{"subnet":"10.1.0.0/22"}]]`)), time.Hour)
					})
				}
				wg.Wait()
			}
			b.ReportMetric(float64((processTime()-before).Microseconds())/float64(b.N), "cpu-us/200")
		})
	}
}

// besideNode returns a node on which a network has a number of attachments and has been quiet for a while.
func besideNode(b *testing.B, name string, held int) *node {
	b.Helper()
	bin := ours(b)
	if name == binaries.HostLocal {
		bin = other(b, name)
	}
	n := newNode(b, bin)
	manyFiles(b, filepath.Join(n.dir, "net"), held)
	n.must(del1("nobody", conf("net", one24)))
	past := time.Now().Add(-time.Hour)
	if err := os.Chtimes(filepath.Join(n.dir, "net"), past, past); err != nil {
		b.Fatal(err)
	}
	n.must(del1("nobody", conf("net", one24)))
	return n
}

// besideVerbs measures each verb.
func besideVerbs(b *testing.B, n *node) {
	c := strings.Replace(conf("net", one24), "10.1.2.0/24", "10.1.0.0/16", 1)
	took, used := map[string]time.Duration{}, map[string]time.Duration{}
	for b.Loop() {
		for _, verb := range []string{"ADD", "CHECK", "DEL"} {
			began, before := time.Now(), processTime()
			n.must(invocation{verb: verb, container: "new", ifname: "eth0", conf: c})
			took[verb] += time.Since(began)
			used[verb] += processTime() - before
		}
	}
	for verb, d := range took {
		b.ReportMetric(float64(d.Microseconds())/float64(b.N), "us/"+verb)
		b.ReportMetric(float64(used[verb].Microseconds())/float64(b.N), "cpu-us/"+verb)
	}
}

// processTime is the CPU time of the processes that have ended, which says on a busy machine what the time does on a quiet one.
func processTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
