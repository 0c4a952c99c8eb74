package promtest

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/rulefmt"
	"go.yaml.in/yaml/v3"
)

// kits are what the programs of this repository ship.
var kits = map[string]Kit{
	"metrics": {
		Rules: "../../../metrics/alerts.yaml", Tests: "../../../metrics/alerts_test.yaml", Dashboard: "../../../metrics/dashboard.json", Whole: true,
		Table: "../../../metrics/README.md", Runbook: "../../../metrics/README.md", Fixed: []string{"allocator"},
	},
	"node-ipam-controller": {
		Rules: controller + "chart/monitoring/rules.yaml", Tests: controller + "rules_test.yaml", Dashboard: controller + "chart/monitoring/dashboard.json",
		Table: controller + "metrics.md", Runbook: controller + "README.md",
	},
}

const controller = "../../../cmd/node-ipam-controller/deploy/"

// What every program ships is right. The go command does not see that files outside this module have changed: use -count=1.
func TestKits(t *testing.T) {
	for name, k := range kits {
		t.Run(name, func(t *testing.T) {
			rules, errs := k.CheckRules()
			errs = append(errs, k.checkBothWays(rules)...)
			errs = append(errs, k.CheckDashboard()...)
			for _, err := range errs {
				t.Error(err)
			}
			t.Logf("%d rules", len(rules))
		})
	}
}

// checkBothWays returns a fault for each alert that the unit tests never expect to fire, or never expect not to.
func (k Kit) checkBothWays(rules []rulefmt.Rule) (errs []error) {
	text, err := os.ReadFile(k.Tests)
	if err != nil {
		return []error{err}
	}
	var u struct {
		Tests []struct {
			Alerts []struct {
				Name   string `yaml:"alertname"`
				Expect []any  `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		} `yaml:"tests"`
	}
	if err := yaml.Unmarshal(text, &u); err != nil {
		return []error{err}
	}
	type way struct {
		alert string
		fires bool
	}
	seen := make(map[way]bool)
	for _, t := range u.Tests {
		for _, a := range t.Alerts {
			seen[way{a.Name, len(a.Expect) > 0}] = true
		}
	}
	for _, r := range rules {
		if r.Alert != "" && !(seen[way{r.Alert, true}] && seen[way{r.Alert, false}]) {
			errs = append(errs, fmt.Errorf("%s: no test in which it fires, or none in which it does not", r.Alert))
		}
	}
	return errs
}

// The unit tests of the alerts pass. promtool compares what fires at each time, with labels and annotations.
func TestAlerts(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("SKIPPED, there is no promtool here")
	}
	for name, k := range kits {
		t.Run(name, func(t *testing.T) {
			out, err := exec.Command(promtool, "test", "rules", k.Tests).CombinedOutput()
			if err != nil {
				t.Errorf("promtool test rules %s: %v\n%s", k.Tests, err, out)
			}
			if !regexp.MustCompile(`(?m)^ *SUCCESS$`).Match(out) {
				t.Errorf("promtool test rules %s ran no test:\n%s", k.Tests, out)
			}
		})
	}
}

// The checks see a mistyped metric, matcher, grouping and expression.
func TestCheck(t *testing.T) {
	m := Metrics{"a_total": {"job", "x"}, "b": {"job"}}
	for expr, want := range map[string]string{
		`rate(a_total{x="1"}[5m])`:                    "",
		`sum by (x) (a_total) > on(job) group_left b`: "",
		`a_totl`:                   "no metric a_totl",
		`a_total{y="1"}`:           "a_total has no label y",
		`b{x="1"}`:                 "b has no label x",
		`sum by (y) (a_total)`:     "has the label y",
		`a_total / ignoring (z) b`: "has the label z",
		`rate(a_total)`:            "expected type range vector",
		`a_total >`:                "unexpected end",
	} {
		err := m.check(expr)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", expr, err)
		}
	}
}
