package transplant

import (
	"os"
	"regexp"
	"testing"
)

// TestGuideHasTheLines holds the lines of each adapter in the guide to those that its suite measured.
func TestGuideHasTheLines(t *testing.T) {
	measured := regexp.MustCompile(`(?m)^\| ([^|]+) \| \S+ v\S+ \|.* (\d+) \|$`)
	said := regexp.MustCompile(`(?m)^\| \[([^|]+)\]\(\S*transplants/README.md\) \|.* (\d+) \|$`)
	rows := func(re *regexp.Regexp, files ...string) map[string]string {
		lines := map[string]string{}
		for _, name := range files {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			for _, row := range re.FindAllStringSubmatch(string(text), -1) {
				lines[row[1]] = row[2]
			}
		}
		return lines
	}
	want := rows(measured, "../../peers/transplants/README.md", "../../peers/calico/transplants/README.md")
	got := rows(said, "../../../cmd/ipamctl/MIGRATING.md")
	if len(want) < 8 || len(got) != len(want) {
		t.Errorf("%d adapters in the guide, %d measured", len(got), len(want))
	}
	for name, lines := range want {
		if got[name] != lines {
			t.Errorf("%s: %q lines in the guide, %s measured", name, got[name], lines)
		}
	}
}
