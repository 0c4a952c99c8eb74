package promtest

import (
	"strings"
	"testing"
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
			errs = append(errs, k.CheckAlerts(t.Context(), rules)...)
			errs = append(errs, k.CheckDashboard()...)
			for _, err := range errs {
				if err != nil {
					t.Error(err)
				}
			}
			t.Logf("%d rules", len(rules))
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
