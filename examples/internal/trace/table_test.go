package trace

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

const header = "sn,cpu_milli,memory_mib,gpu,model\n"

func TestMalformedTrace(t *testing.T) {
	for name, c := range map[string]struct{ trace, text string }{
		"empty file":       {"", "1:1: the file is empty, the header is missing: sn,cpu_milli,memory_mib"},
		"only a mark":      {"\ufeff", "1:1: the file is empty, the header is missing: sn,cpu_milli,memory_mib"},
		"only blank lines": {"\n\n", "1:1: the file is empty, the header is missing: sn,cpu_milli,memory_mib"},
		"a late header":    {"\n\n" + header + "\n", "4:1: no node after the header"},
		"only a header":    {header, "2:1: no node after the header"},
		"missing column":   {"sn,memory_mib,gpu,model\na,1,0,\n", `1:1: no column "cpu_milli" in the header, which needs sn,cpu_milli,memory_mib`},
		"another trace":    {"name,cpu_milli\na,1\n", `1:1: no column "sn" in the header, which needs sn,cpu_milli,memory_mib`},
		"column twice":     {"sn,cpu_milli,memory_mib,gpu,model,gpu\na,1,1,0,,0\n", `1:35: column "gpu" is there twice`},
		"not a number":     {header + "a,8000,1,0,\nb,eight,1,0,\n", `3:3: cpu_milli is "eight": not a whole number`},
		"fraction":         {header + "a,8000.5,1,0,\n", `2:3: cpu_milli is "8000.5": not a whole number`},
		"empty number":     {header + "a,,1,0,\n", "2:3: cpu_milli is empty: a whole number is needed"},
		"negative cpu":     {header + "a,-8000,1,0,\n", `2:3: cpu_milli is "-8000": it can't be negative`},
		"negative memory":  {header + "a,8000,-1,0,\n", `2:8: memory_mib is "-1": it can't be negative`},
		"too many GPUs":    {header + "a,8000,1,1099511627777,\n", "2:10: gpu is 1099511627777: too large"},
		"beyond 64 bits":   {header + "a,18446744073709551616,1,0,\n", "2:3: cpu_milli is 18446744073709551616: too large"},
		"no name":          {header + "a,1,1,0,\n  ,1,1,0,\n", "3:3: sn is empty: a node needs a name"},
		"duplicate name":   {header + "a,1,1,0,\nb,1,1,0,\n a,1,1,0,\n", `4:2: node "a" is on line 2 already`},
		"row too short":    {header + "a,1,1,0,\nb,1,1\n", "3:5: 3 fields, the header has 5"},
		"row too long":     {header + "a,1,1,0,\nb,1,1,0,,7\n", "3:10: 6 fields, the header has 5"},
		"bare quote":       {header + "a,1,1,0,x\"y\n", "2:10: a quote in a field that does not start with one"},
		"text after quote": {header + "\"a\"b,1,1,0,\n", "2:3: the quotes of a field are not closed, or text follows them"},
		"open quote":       {header + "a,1,1,0,\"x\n", "2:12: the quotes of a field are not closed, or text follows them"},
		"after blank line": {header + "\na,1,1,0,\n\nb,x,1,0,\n", `5:3: cpu_milli is "x": not a whole number`},
		"inside a quote":   {header + "a,1,1,0,\"x\ny\"\nb,x,1,0,\n", `4:3: cpu_milli is "x": not a whole number`},
		"behind a quote":   {header + "\"a\nb\",x,1,0,\n", `3:4: cpu_milli is "x": not a whole number`},
		"first fault":      {header + "a,x,y,0,\nb,-1,1,0,\n", `2:3: cpu_milli is "x": not a whole number`},
		"with mark":        {"\ufeff" + header + "a,x,1,0,\n", `2:3: cpu_milli is "x": not a whole number`},
		"mark, bad header": {"\ufeffsn,sn\n", `1:4: column "sn" is there twice`},
		"with CR LF":       {strings.ReplaceAll(header+"a,1,1,0,\nb,x,1,0,\n", "\n", "\r\n"), `3:3: cpu_milli is "x": not a whole number`},
		"UTF-16":           {"\xff\xfes\x00n\x00,\x00", `1:1: no column "sn" in the header, which needs sn,cpu_milli,memory_mib`},
		"escape sequence":  {header + "a,\x1b[2J,1,0,\n", `2:3: cpu_milli is "\x1b[2J": not a whole number`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := readNodes("x.csv", strings.NewReader(c.trace))
			var fault *Error
			if !errors.As(err, &fault) {
				t.Fatalf("%v", err)
			}
			if diff := cmp.Diff("x.csv:"+c.text, err.Error()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// What people's tools write is read alike: a byte order mark, CR LF, quotes, blanks, other columns
// and another order of columns, no end of line.
func TestReadNodes(t *testing.T) {
	want := []Node{{"a", 8000, 32768, 1, "T4"}, {"b, the second", 0, 0, 0, ""}}
	for name, trace := range map[string]string{
		"plain":         header + "a,8000,32768,1,T4\n\"b, the second\",0,0,0,\n",
		"mark, CR LF":   "\ufeff" + strings.ReplaceAll(header, "\n", "\r\n") + "a,8000,32768,1,T4\r\n\"b, the second\",0,0,0,\r\n",
		"quoted":        "\"sn\",\"cpu_milli\",\"memory_mib\",\"gpu\",\"model\"\n\"a\",\"8000\",\"32768\",\"1\",\"T4\"\n\"b, the second\",\"0\",\"0\",\"0\",\"\"",
		"mark, quoted":  "\ufeff\"sn\",cpu_milli,memory_mib,gpu,model\na,8000,32768,1,T4\n\"b, the second\",0,0,0,\n",
		"blanks":        "sn, cpu_milli ,memory_mib,gpu , model\n\n a , 8000,32768 ,1, T4 \n\n \"b, the second\", 0,0,0,\n\n",
		"other columns": "zone,model,gpu,memory_mib,cpu_milli,sn\nx,T4,1,32768,8000,a\ny,,0,0,0,\"b, the second\"\n",
	} {
		t.Run(name, func(t *testing.T) {
			got, err := readNodes("x.csv", iotest.OneByteReader(strings.NewReader(trace)))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// GPUs are of no importance here: their columns may be missing.
func TestNoGPUs(t *testing.T) {
	got, err := readNodes("x.csv", strings.NewReader("sn,cpu_milli,memory_mib\na,8000,1024\n"))
	if want := []Node{{Name: "a", MilliCPU: 8000, MemoryMiB: 1024}}; err != nil || !cmp.Equal(want, got) {
		t.Errorf("%+v, %v", got, err)
	}
}

// The largest number that is taken.
func TestLargestCount(t *testing.T) {
	nodes, err := readNodes("x.csv", strings.NewReader(header+"a,1099511627776,1099511627776,1099511627776,\n"))
	if err != nil || nodes[0].MilliCPU != MaxCount || nodes[0].MemoryMiB != MaxCount || nodes[0].GPUs != MaxCount {
		t.Errorf("%+v, %v", nodes, err)
	}
}

// An error of the reader itself has no line; it keeps its cause.
func TestReadError(t *testing.T) {
	cause := errors.New("disk on fire")
	for _, before := range []string{"", header, header + "a,1,1,0,\nb,"} {
		_, err := readNodes("x.csv", io.MultiReader(strings.NewReader(before), iotest.ErrReader(cause)))
		if !errors.Is(err, cause) || !strings.HasPrefix(err.Error(), "x.csv: ") {
			t.Errorf("after %q: %v", before, err)
		}
	}
}
