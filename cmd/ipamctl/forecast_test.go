package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// The rate is that of the addresses that are held and were not a week before; what was recorded before counts for nothing, and neither does
// an address that came and went, or a second holder. Less than a day of recording, and changes that are missing, are no ground.
func TestForecast(t *testing.T) {
	env := map[string]string{"IPAMCTL_STORE": newBolt(t, cluster(t))}
	file := t.TempDir() + "/changes"
	type line struct {
		ago          time.Duration
		change, what string
	}
	day := 24 * time.Hour
	grown := []line{{30 * day, "recording began", ""}, {20 * day, "assigned", "10.1.0.1"}}
	for i := range 14 {
		grown = append(grown, line{time.Duration(14-i) * day / 2, "assigned", fmt.Sprintf("10.1.0.%d", 100+i)})
	}
	for _, c := range []struct {
		name  string
		lines []line
		want  []string
	}{
		{"two a day", grown, []string{"not growing", "about 109 days", "not growing"}},
		{"came and went, and a second holder", slices.Concat(grown, []line{{3 * time.Hour, "assigned", "10.1.0.200"}, {2 * time.Hour, "cooling", "10.1.0.200"}, {time.Hour, "assigned", "10.1.0.113"}}),
			[]string{"not growing", "about 109 days", "not growing"}},
		{"shrinks", []line{{8 * day, "recording began", ""}, {day, "released", "10.1.0.1"}}, []string{"not growing", "not growing", "not growing"}},
		{"the first hours", []line{{23 * time.Hour, "recording began", ""}, {time.Hour, "assigned", "10.1.0.1"}}, []string{"not enough recorded", "not enough recorded", "not enough recorded"}},
		{"a day", []line{{day, "recording began", ""}, {time.Hour, "as found: assigned", "10.1.0.1"}}, []string{"not growing", "about 218 days", "not growing"}},
		{"a gap", append(slices.Clone(grown), line{time.Hour, missingChanges, ""}), []string{"not enough recorded", "not enough recorded", "not enough recorded"}},
		{"a large pool", []line{{8 * day, "recording began", ""}, {day, "assigned", "fd00:10::1"}}, []string{"not growing", "not growing", "more than 10 years"}},
	} {
		var out strings.Builder
		for i, l := range c.lines {
			v := changeView{Time: timeText(noon.Add(-l.ago)), Rev: uint64(i), Change: l.change, What: l.what}
			text, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			out.Write(append(text, '\n'))
		}
		if err := os.WriteFile(file, []byte(out.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		status, text, stderr := call(t, env, "forecast", "--recording", file, "-o", "json")
		var views []struct{ FullIn string }
		if err := json.Unmarshal([]byte(text), &views); err != nil || status != exitOK {
			t.Fatal(c.name, status, stderr, err)
		}
		var got []string
		for _, v := range views {
			got = append(got, v.FullIn)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	for line, want := range map[string]int{"forecast": exitUsage, "forecast none --recording " + file: exitNotFound, "forecast --recording " + file + ".none": exitNotFound, "forecast pods --recording " + file: exitOK} {
		if status, _, stderr := call(t, env, strings.Fields(line)...); status != want {
			t.Errorf("%s: status %d, %s", line, status, stderr)
		}
	}
}
