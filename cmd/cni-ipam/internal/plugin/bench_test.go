package plugin

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
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
			for i := 0; b.Loop(); i++ {
				n.must(add1("first", conf(fmt.Sprint("first", b.N, "-", i), one24)))
			}
		})
		b.Run("200 at once/"+name, func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				var wg sync.WaitGroup
				for c := range 200 {
					wg.Go(func() {
						n.start(add1(fmt.Sprint("c", c), conf(fmt.Sprint("many", b.N, "-", i), `"ranges":[[{"subnet":"10.1.0.0/22"}]]`)), time.Hour)
					})
				}
				wg.Wait()
			}
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
	took := map[string]time.Duration{}
	for b.Loop() {
		for _, verb := range []string{"ADD", "CHECK", "DEL"} {
			began := time.Now()
			n.must(invocation{verb: verb, container: "new", ifname: "eth0", conf: c})
			took[verb] += time.Since(began)
		}
	}
	for verb, d := range took {
		b.ReportMetric(float64(d.Microseconds())/float64(b.N), "us/"+verb)
	}
}
