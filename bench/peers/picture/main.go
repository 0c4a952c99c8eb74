// Command picture draws pairs.svg from the tables in README.md and calico/README.md. It shows the time of one allocation and
// its release against the fill of the set or block.
//
//	cd bench/peers && GOWORK=off go run ./picture
package main

import (
	"log"
	"os"
	"regexp"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
)

// curves are three rows of a table that differ in what is taken, from the tick at of the picture on, and the columns of times.
var curves = []struct {
	file, row string
	at        int
	names     []string
}{
	{"README.md", `Release \+ AllocateNext, 2\^16 children, \S+ % taken`, 1, []string{"the loop alone", "cidrset", "bitset and a mutex", "Cilium", "Kubernetes"}},
	{"calico/README.md", `AutoAssign \+ release, a host with a /26 of which \d+ are held`, 0, []string{"ipset, in memory", "Calico, in memory"}},
}

func main() {
	if err := draw("pairs.svg"); err != nil {
		log.Fatal(err)
	}
}

func draw(file string) error {
	p := plot.New()
	p.Title.Text, p.Y.Label.Text = "one allocation and its release", "ns, logarithmic"
	p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	p.NominalX("empty", "half taken", "99 % (a /26: 97 %)", "99.99 %")
	p.Legend.Top, p.Legend.Left, p.Legend.XOffs = true, true, 4.6*vg.Inch
	var lines []any
	for _, c := range curves {
		text, err := os.ReadFile(c.file)
		if err != nil {
			return err
		}
		rows := regexp.MustCompile(`(?m)^\| `+c.row+` +\|(.*)$`).FindAllStringSubmatch(string(text), -1)
		for n, name := range c.names {
			line := make(plotter.XYs, 3)
			for i := range line {
				d, err := time.ParseDuration(strings.ReplaceAll(strings.Split(rows[i][1], "|")[n], " ", ""))
				if err != nil {
					return err
				}
				line[i] = plotter.XY{X: float64(c.at + i), Y: float64(d)}
			}
			lines = append(lines, name, line)
		}
	}
	p.X.Max = 4 // room for the legend
	if err := plotutil.AddLinePoints(p, lines...); err != nil {
		return err
	}
	return p.Save(7.6*vg.Inch, 4*vg.Inch, file)
}
