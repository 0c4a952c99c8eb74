package trace

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const podHeader = "name,cpu_milli,creation_time,deletion_time\n"

var someNodes = map[string]bool{"n1": true, "n2": true}

func TestMalformedPods(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "1:1: the file is empty, the header is missing: name,cpu_milli,creation_time,deletion_time",
		"name,cpu_milli\n":              `1:1: no column "creation_time" in the header, which needs name,cpu_milli,creation_time,deletion_time`,
		podHeader + ",1,1,2\n":          "2:1: name is empty: a pod needs a name",
		podHeader + "a,1,1,2\na,1,,\n":  `3:1: pod "a" is on line 2 already`,
		podHeader + "a,x,1,2\n":         `2:3: cpu_milli is "x": not a whole number`,
		podHeader + "a,1,,2\n":          "2:5: creation_time is empty: a whole number is needed",
		podHeader + "a,1,-1,2\n":        `2:5: creation_time is "-1": it can't be negative`,
		podHeader + "a,1,3,2\n":         "2:7: deletion_time is 2: the pod comes at 3 only",
		podHeader + "a,1,3,soon\n":      `2:7: deletion_time is "soon": not a whole number`,
		podHeader + "a,1,4294967297,\n": "2:5: creation_time is 4294967297: beyond 4294967296 seconds",
		podHeader + "a,1,3\n":           "2:5: 3 fields, the header has 4",
		podHeader + strings.Repeat("a", 1025) + ",1,3,4\n": "2:1: name is no name: longer than 1024 bytes, or with a NUL byte in it",
		podHeader + "a\x00b,1,3,4\n":                       "2:1: name is no name: longer than 1024 bytes, or with a NUL byte in it",
		"node," + podHeader + "n3,a,1,3,4\n":               `2:1: there is no node "n3"`,
	} {
		if _, err := readPods("p.csv", strings.NewReader(text), someNodes); err == nil || err.Error() != "p.csv:"+want {
			t.Errorf("%.40q: %v\nwant %s", text, err, want)
		}
	}
}

func TestReadPods(t *testing.T) {
	text := "qos,name,cpu_milli,node,creation_time,deletion_time\nLS,a,100,n2,5,5\nBE,b,0,,7,\n"
	got, err := readPods("p.csv", strings.NewReader(text), someNodes)
	want := []Pod{{Name: "a", MilliCPU: 100, Created: 5, Deleted: 5, Node: "n2"}, {Name: "b", Created: 7, Stays: true}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
}

// show returns a schedule as one word for each event.
func show(events []Event) string {
	var words []string
	for _, e := range events {
		sign := "-"
		if e.Comes {
			sign = "+"
		}
		words = append(words, fmt.Sprintf("%d%s%s@%s", e.Time, sign, e.Pod.Name, e.Node))
	}
	return strings.Join(words, " ")
}

func TestSchedule(t *testing.T) {
	nodes := []Node{{Name: "small", MilliCPU: 4000}, {Name: "large", MilliCPU: 16000}, {Name: "none"}}
	stays := func(name string, cpu, at uint64) Pod {
		return Pod{Name: name, MilliCPU: cpu, Created: at, Stays: true}
	}
	for name, c := range map[string]struct {
		pods        []Pod
		least, most string
	}{
		"order": {
			// At 5, a goes before c comes; b comes and goes at 5; d is later in time, earlier in the file.
			[]Pod{stays("d", 1, 9), {Name: "a", Created: 1, Deleted: 5}, {Name: "b", Created: 5, Deleted: 5}, stays("c", 0, 5)},
			"1+a@small 5-a@small 5+b@large 5+c@none 5-b@large 9+d@small",
			"1+a@small 5-a@small 5+b@small 5+c@small 5-b@small 9+d@small",
		},
		"load is a share": {
			// a quarter of small, then of large; a machine without cores is overloaded by anything.
			[]Pod{stays("a", 1000, 1), stays("b", 1000, 2), stays("c", 1, 3), stays("d", 1, 4), stays("e", 1, 5)},
			"1+a@small 2+b@large 3+c@none 4+d@large 5+e@large",
			"1+a@small 2+b@small 3+c@small 4+d@small 5+e@small",
		},
		"full": {
			[]Pod{stays("a", 4000, 1), stays("b", 15000, 2), stays("c", 2000, 3), stays("d", 1000, 4)},
			"1+a@small 2+b@large 3+c@none 4+d@large",
			"1+a@small 2+b@large 3+c@none 4+d@large",
		},
		"named": {
			[]Pod{{Name: "a", MilliCPU: 1, Created: 1, Stays: true, Node: "none"}, stays("b", 1, 2)},
			"1+a@none 2+b@small", "1+a@none 2+b@small",
		},
	} {
		t.Run(name, func(t *testing.T) {
			for p, want := range map[Placement]string{Least: c.least, Most: c.most} {
				if diff := cmp.Diff(want, show(Schedule(nodes, c.pods, p))); diff != "" {
					t.Errorf("%s (-want +got):\n%s", p, diff)
				}
			}
		})
	}
}

func TestPeak(t *testing.T) {
	pods := []Pod{{Name: "a", Created: 1, Deleted: 5}, {Name: "b", Created: 5, Deleted: 5}, {Name: "c", Created: 5, Deleted: 6}, {Name: "d", Created: 7, Stays: true}}
	if after, n := Peak(Schedule([]Node{{Name: "n"}}, pods, Least)); after != 4 || n != 2 { // 1+a 5-a 5+b 5+c
		t.Errorf("%d after %d", n, after)
	}
	twice := []Pod{{Name: "a", Created: 1, Deleted: 2}, {Name: "b", Created: 3, Deleted: 4}}
	if after, n := Peak(Schedule([]Node{{Name: "n"}}, twice, Least)); after != 1 || n != 1 { // the first of two
		t.Errorf("%d after %d", n, after)
	}
	if after, n := Peak(nil); after != 0 || n != 0 {
		t.Errorf("%d after %d", n, after)
	}
}

func TestParsePlacement(t *testing.T) {
	if _, err := ParsePlacement("some"); err == nil || err.Error() != `"some" is no placement: least or most` {
		t.Error(err)
	}
	if p, err := ParsePlacement("most"); p != Most || err != nil {
		t.Error(p, err)
	}
}

// The built-in traces fit each other.
func TestBuiltin(t *testing.T) {
	nodes, err := LoadNodes("")
	if err != nil || len(nodes) != 40 {
		t.Fatal(len(nodes), err)
	}
	pods, err := LoadPods("", nodes)
	if err != nil || len(pods) != 163 {
		t.Fatal(len(pods), err)
	}
}
