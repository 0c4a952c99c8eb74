package selector_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/selector"
)

type (
	req    = selector.Requirement
	term   = selector.Term
	labels = map[string]string
)

func must(t testing.TB, terms ...term) *selector.Matcher {
	t.Helper()
	s, err := selector.Selector(terms).Compile()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// What each operator asks, for the absent label too.
func TestOperators(t *testing.T) {
	for _, c := range []struct {
		r     req
		value string // "-" for no such label
		want  bool
	}{
		{req{"a", selector.In, []string{"x", "y"}}, "y", true},
		{req{"a", selector.In, []string{"x", "y"}}, "z", false},
		{req{"a", selector.In, []string{"x", "y"}}, "-", false},
		{req{"a", selector.In, []string{""}}, "", true},
		{req{"a", selector.In, []string{""}}, "-", false},
		{req{"a", selector.NotIn, []string{"x", "y"}}, "y", false},
		{req{"a", selector.NotIn, []string{"x", "y"}}, "z", true},
		{req{"a", selector.NotIn, []string{"x", "y"}}, "-", true},
		{req{"a", selector.NotIn, []string{""}}, "-", true},
		{req{"a", selector.Exists, nil}, "", true},
		{req{"a", selector.Exists, nil}, "-", false},
		{req{"a", selector.DoesNotExist, nil}, "", false},
		{req{"a", selector.DoesNotExist, nil}, "-", true},
		{req{"a", selector.Gt, []string{"5"}}, "6", true},
		{req{"a", selector.Gt, []string{"5"}}, "5", false},
		{req{"a", selector.Gt, []string{"5"}}, "10", true}, // a number, not a string
		{req{"a", selector.Gt, []string{"5"}}, "x6", false},
		{req{"a", selector.Gt, []string{"5"}}, "", false},
		{req{"a", selector.Gt, []string{"5"}}, "-", false},
		{req{"a", selector.Gt, []string{"5"}}, "9223372036854775807", true},
		{req{"a", selector.Gt, []string{"5"}}, "9223372036854775808", false},
		{req{"a", selector.Gt, []string{"-1"}}, "0", true},
		{req{"a", selector.Gt, []string{"9223372036854775807"}}, "9223372036854775807", false},
		{req{"a", selector.Lt, []string{"5"}}, "4", true},
		{req{"a", selector.Lt, []string{"5"}}, "5", false},
		{req{"a", selector.Lt, []string{"50"}}, "6", true},
		{req{"a", selector.Lt, []string{"5"}}, "", false},
		{req{"a", selector.Lt, []string{"5"}}, "-", false},
		{req{"a", selector.Lt, []string{"-9223372036854775808"}}, "-9223372036854775808", false},
	} {
		node := labels{"b": "y", "a": c.value}
		if c.value == "-" {
			delete(node, "a")
		}
		s := must(t, term{Labels: []req{c.r}})
		if _, got := s.Match("n", node); got != c.want {
			t.Errorf("%v on %v: %v, want %v", s, node, got, c.want)
		}
		if got := s.Why("n", node); (got == "") != c.want {
			t.Errorf("%v on %v: because %q, want a match %v", s, node, got, c.want)
		}
	}
}

// Terms are OR-ed, requirements AND-ed; the best matching term counts.
func TestMatch(t *testing.T) {
	a := req{"a", selector.Exists, nil}
	b := req{"b", selector.In, []string{"1", "2"}}
	notC := req{"c", selector.DoesNotExist, nil}
	n1 := req{selector.NameField, selector.In, []string{"n1"}}
	notN1 := req{selector.NameField, selector.NotIn, []string{"n1"}}
	for name, c := range map[string]struct {
		terms []term
		node  string
		has   labels
		met   int // -1: no match
		text  string
	}{
		"empty matches everything":          {nil, "n1", labels{"a": ""}, 0, ""},
		"both of a term":                    {[]term{{Labels: []req{b, a}}}, "n1", labels{"a": "x", "b": "2"}, 2, "a=x,b=2"},
		"one of a term":                     {[]term{{Labels: []req{a, b}}}, "n1", labels{"a": "x"}, -1, ""},
		"one term of two":                   {[]term{{Labels: []req{a}}, {Labels: []req{b}}}, "n1", labels{"b": "1"}, 1, "b=1"},
		"the better term":                   {[]term{{Labels: []req{a}}, {Labels: []req{a, b}}}, "n1", labels{"a": "x", "b": "1"}, 2, "a=x,b=1"},
		"the better term fails":             {[]term{{Labels: []req{a}}, {Labels: []req{a, b}}}, "n1", labels{"a": "x", "b": "3"}, 1, "a=x"},
		"of equal terms the lowest":         {[]term{{Labels: []req{b}}, {Labels: []req{a}}}, "n1", labels{"a": "x", "b": "1"}, 1, "a=x"},
		"the lowest by labels, not by term": {[]term{{Labels: []req{notC, {"z", selector.Exists, nil}}}, {Labels: []req{b}}}, "n1", labels{"z": "1", "b": "1"}, 1, "b=1"},
		"negative ones do not count":        {[]term{{Labels: []req{a, notC}}}, "n1", labels{"a": "x"}, 1, "a=x"},
		"only negative ones":                {[]term{{Labels: []req{notC}}}, "n1", labels{"a": "x"}, 0, ""},
		"the name":                          {[]term{{Fields: []req{n1}}}, "n1", nil, 1, "metadata.name=n1"},
		"another name":                      {[]term{{Fields: []req{n1}}}, "n2", nil, -1, ""},
		"not that name":                     {[]term{{Fields: []req{notN1}}}, "n2", nil, 0, ""},
		"that very name":                    {[]term{{Fields: []req{notN1}}}, "n1", nil, -1, ""},
		"the name is no label":              {[]term{{Fields: []req{n1}}}, "n2", labels{"metadata.name": "n1"}, -1, ""},
		"the label is not the name":         {[]term{{Labels: []req{{selector.NameField, selector.In, []string{"n1"}}}}}, "n1", nil, -1, ""},
		"name and label":                    {[]term{{Labels: []req{a}, Fields: []req{n1}}}, "n1", labels{"a": "x"}, 2, "a=x,metadata.name=n1"},
		"the name among labels":             {[]term{{Labels: []req{{"z", selector.Exists, nil}, a}, Fields: []req{n1}}}, "n1", labels{"a": "x", "z": "y"}, 3, "a=x,metadata.name=n1,z=y"},
		"the name after its label":          {[]term{{Labels: []req{{selector.NameField, selector.Exists, nil}}, Fields: []req{n1}}}, "n1", labels{selector.NameField: "x"}, 2, "metadata.name=x,metadata.name=n1"},
		"a label asked for twice is one":    {[]term{{Labels: []req{{"a", selector.Gt, []string{"1"}}, {"a", selector.Lt, []string{"9"}}}}}, "n1", labels{"a": "5"}, 1, "a=5"},
		"several values are one label":      {[]term{{Labels: []req{b}}}, "n1", labels{"b": "2"}, 1, "b=2"},
		"no labels at all":                  {[]term{{Labels: []req{a}}}, "n1", nil, -1, ""},
	} {
		s := must(t, c.terms...)
		met, ok := s.Match(c.node, c.has)
		if !ok {
			met = -1
		}
		if text := s.Labels(c.node, c.has); met != c.met || text != c.text {
			t.Errorf("%s: %d %q, want %d %q", name, met, text, c.met, c.text)
		}
	}
	var none *selector.Matcher
	if met, ok := none.Match("n", nil); met != 0 || !ok || !none.Empty() || none.String() != "" || none.Why("n", nil) != "" || none.Labels("n", nil) != "" {
		t.Error("the nil selector does not select everything")
	}
}

// The canonical form is one for all orders and repetitions of the same thing.
func TestCanonicalForm(t *testing.T) {
	x := term{Labels: []req{{"b", selector.In, []string{"y", "x", "y"}}, {"a", selector.DoesNotExist, nil}, {"b", selector.In, []string{"x", "y"}}}}
	y := term{Labels: []req{{"c", selector.Gt, []string{"+5"}}}, Fields: []req{{selector.NameField, selector.NotIn, []string{"n2", "n1"}}}}
	want := "!a, b in (x,y) or c > 5, field metadata.name notin (n1,n2)"
	for _, terms := range [][]term{{x, y}, {y, x}, {x, y, x}} {
		if got := must(t, terms...).String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestWhy(t *testing.T) {
	s := must(t,
		term{Labels: []req{{"zone", selector.In, []string{"b", "c"}}}},
		term{Labels: []req{{"gpu", selector.Exists, nil}}},
		term{Fields: []req{{selector.NameField, selector.In, []string{"n9"}}}})
	want := "field metadata.name in (n9), but metadata.name=n1; or gpu, but there is no gpu; or zone in (b,c), but zone=a"
	if got := s.Why("n1", labels{"zone": "a"}); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// Every refusal names its place and says what is wrong.
func TestRefusals(t *testing.T) {
	long := strings.Repeat("x", 64)
	for name, c := range map[string]struct {
		term         term
		reason, path string
	}{
		"nothing asked":         {term{}, "a term without requirements", "[1]"},
		"unknown operator":      {term{Labels: []req{{"a", "Near", nil}}}, "unknown operator", "[1].Labels[0]"},
		"no operator":           {term{Labels: []req{{"a", "", nil}}}, "unknown operator", "[1].Labels[0]"},
		"operator in lower":     {term{Labels: []req{{"a", "in", []string{"x"}}}}, "unknown operator", "[1].Labels[0]"},
		"no key":                {term{Labels: []req{{"", selector.Exists, nil}}}, "bad key", "[1].Labels[0]"},
		"space in key":          {term{Labels: []req{{"a b", selector.Exists, nil}}}, "bad key", "[1].Labels[0]"},
		"key begins with a dot": {term{Labels: []req{{".a", selector.Exists, nil}}}, "bad key", "[1].Labels[0]"},
		"long key":              {term{Labels: []req{{long, selector.Exists, nil}}}, "bad key", "[1].Labels[0]"},
		"empty prefix":          {term{Labels: []req{{"/a", selector.Exists, nil}}}, "bad key", "[1].Labels[0]"},
		"empty name":            {term{Labels: []req{{"a/", selector.Exists, nil}}}, "bad key", "[1].Labels[0]"},
		"prefix in upper":       {term{Labels: []req{{"A.io/a", selector.Exists, nil}}}, "bad key", "[1].Labels[0]"},
		"prefix with a hyphen":  {term{Labels: []req{{"-a.io/a", selector.Exists, nil}}}, "bad key", "[1].Labels[0]"},
		"prefix, empty part":    {term{Labels: []req{{"a..io/a", selector.Exists, nil}}}, "bad key", "[1].Labels[0]"},
		"two slashes":           {term{Labels: []req{{"a/b/c", selector.Exists, nil}}}, "bad key", "[1].Labels[0]"},
		"In without values":     {term{Labels: []req{{"a", selector.In, nil}}}, "wrong number of values", "[1].Labels[0]"},
		"NotIn without values":  {term{Labels: []req{{"a", selector.NotIn, nil}}}, "wrong number of values", "[1].Labels[0]"},
		"Exists with a value":   {term{Labels: []req{{"a", selector.Exists, []string{"x"}}}}, "wrong number of values", "[1].Labels[0]"},
		"DoesNotExist with one": {term{Labels: []req{{"a", selector.DoesNotExist, []string{"x"}}}}, "wrong number of values", "[1].Labels[0]"},
		"Gt with two":           {term{Labels: []req{{"a", selector.Gt, []string{"1", "2"}}}}, "wrong number of values", "[1].Labels[0]"},
		"Lt with none":          {term{Labels: []req{{"a", selector.Lt, nil}}}, "wrong number of values", "[1].Labels[0]"},
		"Gt of a word":          {term{Labels: []req{{"a", selector.Gt, []string{"x"}}}}, "bad value", "[1].Labels[0]"},
		"Gt of too much":        {term{Labels: []req{{"a", selector.Gt, []string{"9223372036854775808"}}}}, "bad value", "[1].Labels[0]"},
		"long value":            {term{Labels: []req{{"a", selector.In, []string{"x", long}}}}, "bad value", "[1].Labels[0]"},
		"value with a space":    {term{Labels: []req{{"a", selector.Exists, nil}, {"a", selector.In, []string{"x y"}}}}, "bad value", "[1].Labels[1]"},
		"value ends in a dot":   {term{Labels: []req{{"a", selector.In, []string{"x."}}}}, "bad value", "[1].Labels[0]"},
		"another field":         {term{Fields: []req{{"spec.x", selector.In, []string{"x"}}}}, "bad key", "[1].Fields[0]"},
		"field exists":          {term{Fields: []req{{selector.NameField, selector.Exists, nil}}}, "unknown operator", "[1].Fields[0]"},
		"field with no value":   {term{Fields: []req{{selector.NameField, selector.In, nil}}}, "wrong number of values", "[1].Fields[0]"},
		"field with a bad name": {term{Fields: []req{{selector.NameField, selector.In, []string{""}}}}, "bad value", "[1].Fields[0]"},
	} {
		good := term{Labels: []req{{"k8s.example.com/a", selector.In, []string{"", strings.Repeat("x", 63)}}}}
		m, err := selector.Selector{good, c.term}.Compile()
		var e *ipalloc.Error
		if m != nil || !errors.Is(err, ipalloc.ErrInvalid) || !errors.As(err, &e) || e.Field != c.path || !strings.HasPrefix(e.Reason, c.reason) {
			t.Errorf("%s: %v, want %v at %s", name, err, c.reason, c.path)
		}
	}
}

// Of all bytes, keys, values and names take letters, digits, '-', '_' and '.' in the
// middle, letters and digits at both ends; the prefix of a key takes fewer.
func TestEveryByte(t *testing.T) {
	const outer = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	const lower = "0123456789abcdefghijklmnopqrstuvwxyz"
	for c := range 256 {
		b := string([]byte{byte(c)})
		for what, x := range map[string]struct {
			r    req
			f    bool
			good string
		}{
			"key, middle":    {req{"x" + b + "x", selector.Exists, nil}, false, outer + "-_./"},
			"key, start":     {req{b + "x", selector.Exists, nil}, false, outer},
			"key, end":       {req{"x" + b, selector.Exists, nil}, false, outer},
			"prefix, middle": {req{"x" + b + "x/x", selector.Exists, nil}, false, lower + "-."},
			"prefix, end":    {req{"x" + b + "/x", selector.Exists, nil}, false, lower},
			"value, middle":  {req{"x", selector.In, []string{"x" + b + "x"}}, false, outer + "-_."},
			"value, start":   {req{"x", selector.In, []string{b + "x"}}, false, outer},
			"name, middle":   {req{selector.NameField, selector.In, []string{"x" + b + "x"}}, true, outer + "-_."},
			"name, end":      {req{selector.NameField, selector.NotIn, []string{"x" + b}}, true, outer},
		} {
			tm := term{Labels: []req{x.r}}
			if x.f {
				tm = term{Fields: []req{x.r}}
			}
			_, err := selector.Selector{tm}.Compile()
			if want := strings.Contains(x.good, b); (err == nil) != want {
				t.Errorf("%s, byte %d %q: %v, want good %v", what, c, b, err, want)
			}
		}
	}
}

// The longest prefix of a key and the longest name have 253 bytes, the longest name of
// a key and the longest value 63.
func TestBoundsOfLength(t *testing.T) {
	long := func(n int) string { return strings.Repeat("x", n) }
	for n, want := range map[int]bool{1: true, 62: true, 63: true, 64: true, 252: true, 253: true, 254: false, 255: false} {
		_, prefix := selector.Selector{term{Labels: []req{{long(n) + "/x", selector.Exists, nil}}}}.Compile()
		_, name := selector.Selector{term{Fields: []req{{selector.NameField, selector.In, []string{long(n)}}}}}.Compile()
		if (prefix == nil) != want || (name == nil) != want {
			t.Errorf("%d bytes: prefix %v, name %v, want good %v", n, prefix, name, want)
		}
		_, key := selector.Selector{term{Labels: []req{{"x/" + long(n), selector.Exists, nil}}}}.Compile()
		_, value := selector.Selector{term{Labels: []req{{"x", selector.In, []string{long(n)}}}}}.Compile()
		if want := n <= 63; (key == nil) != want || (value == nil) != want {
			t.Errorf("%d bytes: key %v, value %v, want good %v", n, key, value, want)
		}
	}
}

// Match agrees with the plainest reading of the rules, whatever the order of terms.
func TestMatchAgainstPlainReading(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	ops := []selector.Operator{selector.In, selector.NotIn, selector.Exists, selector.DoesNotExist, selector.Gt, selector.Lt}
	pick := func(from string) string { i := rng.IntN(len(from)); return from[i : i+1] }
	for range 20000 {
		node := labels{}
		for range rng.IntN(4) {
			node[pick("abc")] = pick("123x")
		}
		var terms []term
		for range rng.IntN(4) {
			var tm term
			for range 1 + rng.IntN(3) {
				r := req{Key: pick("abc"), Op: ops[rng.IntN(len(ops))]}
				switch r.Op {
				case selector.In, selector.NotIn:
					r.Values = []string{pick("123x"), pick("123x")}
				case selector.Gt, selector.Lt:
					r.Values = []string{pick("123")}
				}
				tm.Labels = append(tm.Labels, r)
			}
			terms = append(terms, tm)
		}
		want := plain(terms, node)
		for range 2 {
			met, ok := must(t, terms...).Match("n", node)
			if !ok {
				met = -1
			}
			if met != want {
				t.Fatalf("%v on %v: %d, want %d", terms, node, met, want)
			}
			slices.Reverse(terms)
		}
	}
}

// plain returns how many labels the best matching term needs, -1 for no match.
func plain(terms []term, node labels) int {
	best := -1
	if len(terms) == 0 {
		return 0
	}
	for _, tm := range terms {
		needed, ok := map[string]bool{}, true
		for _, r := range tm.Labels {
			value, has := node[r.Key]
			n, numErr := strconv.Atoi(value)
			switch r.Op {
			case selector.In:
				ok = ok && has && slices.Contains(r.Values, value)
			case selector.NotIn:
				ok = ok && !(has && slices.Contains(r.Values, value))
			case selector.Exists:
				ok = ok && has
			case selector.DoesNotExist:
				ok = ok && !has
			default:
				bound, _ := strconv.Atoi(r.Values[0])
				ok = ok && has && numErr == nil && (r.Op == selector.Gt && n > bound || r.Op == selector.Lt && n < bound)
			}
			if r.Op != selector.NotIn && r.Op != selector.DoesNotExist {
				needed[r.Key] = true
			}
		}
		if ok {
			best = max(best, len(needed))
		}
	}
	return best
}

func TestMatchDoesNotAllocate(t *testing.T) {
	s := must(t, term{Labels: []req{{"a", selector.In, []string{"x", "y"}}, {"n", selector.Gt, []string{"5"}}}})
	node := labels{"a": "y", "n": "7"}
	if n := testing.AllocsPerRun(100, func() { s.Match("n1", node) }); n != 0 {
		t.Errorf("Match allocates %v times", n)
	}
}

func TestSelectorMatches(t *testing.T) {
	web := selector.Selector{{Labels: []selector.Requirement{{Key: "tier", Op: selector.In, Values: []string{"web"}}}}, {Fields: []selector.Requirement{{Key: "metadata.name", Op: selector.In, Values: []string{"n1"}}}}}
	for _, tt := range []struct {
		s      selector.Selector
		name   string
		labels map[string]string
		want   bool
	}{
		{nil, "", nil, true},
		{web, "n2", nil, false},
		{web, "n2", map[string]string{"tier": "web"}, true},
		{web, "n2", map[string]string{"tier": "db"}, false},
		{web, "n1", map[string]string{"tier": "db"}, true},
	} {
		if got, err := tt.s.Matches(tt.name, tt.labels); got != tt.want || err != nil {
			t.Errorf("%v matches %s %v: %v, %v", tt.s, tt.name, tt.labels, got, err)
		}
	}
	for _, s := range []selector.Selector{{{}}, {{Labels: []selector.Requirement{{Key: "a", Op: "Near"}}}}, {{Fields: []selector.Requirement{{Key: "metadata.name", Op: selector.Exists}}}}} {
		if ok, err := s.Matches("n1", nil); ok || !errors.Is(err, ipalloc.ErrInvalid) {
			t.Errorf("%v: %v, %v", s, ok, err)
		}
	}
}
