// Package promtest checks the alerts and dashboards of this repository with Prometheus's own packages. The rules must
// load, and every expression must name existing metrics and labels. Each alert needs its paragraph in a README. Its test
// runs the unit tests of the alerts with promtool.
//
// It is in a module for tools because Prometheus has many dependencies. It reads only files, which a Kit names.
package promtest

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

// Kit names the files that a program ships for Prometheus and Grafana.
type Kit struct {
	// Rules is a file of alerting rules, Tests a file of promtool's unit tests for them.
	Rules, Tests string
	// Dashboard is a Grafana dashboard; Whole means that its panels show every metric of the table.
	Dashboard string
	Whole     bool
	// Table is a Markdown file with a table of the metrics: rows of `name`, type and `labels`. A test of the program compares
	// them with its output. Labels of the target are job and instance.
	Table string
	// Fixed are labels that every metric of the table has.
	Fixed []string
	// Runbook is a Markdown file with a heading for each alert.
	Runbook string
}

// Metrics are the labels of each metric by its name; a histogram has three names.
type Metrics map[string][]string

// metrics reads the table of a kit.
func (k Kit) metrics() (Metrics, error) {
	text, err := os.ReadFile(k.Table)
	if err != nil {
		return nil, err
	}
	m := make(Metrics)
	row := regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (gauge|counter|histogram) \\|([^|]*)\\|")
	for _, r := range row.FindAllStringSubmatch(string(text), -1) {
		ls := slices.Concat(k.Fixed, []string{"job", "instance"}, strings.FieldsFunc(r[3], func(c rune) bool { return strings.ContainsRune("`, ", c) }))
		if r[2] != "histogram" {
			m[r[1]] = ls
			continue
		}
		m[r[1]+"_sum"], m[r[1]+"_count"], m[r[1]+"_bucket"] = ls, ls, append(ls[:len(ls):len(ls)], "le")
	}
	if len(m) == 0 {
		return nil, fmt.Errorf("%s has no table of metrics", k.Table)
	}
	return m, nil
}

// check returns what is wrong with an expression: that it does not parse, or names a metric or label that does not exist.
func (m Metrics) check(expr string) error {
	e, err := parser.ParseExpr(expr)
	if err != nil {
		return err
	}
	selected := make(map[string]bool) // labels of the metrics in the expression
	var bad []string
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		v, ok := n.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		has, known := m[v.Name]
		if !known {
			bad = append(bad, "no metric "+v.Name)
		}
		for _, l := range has {
			selected[l] = true
		}
		for _, l := range v.LabelMatchers {
			if known && l.Name != labels.MetricName && !slices.Contains(has, l.Name) {
				bad = append(bad, fmt.Sprintf("%s has no label %s", v.Name, l.Name))
			}
		}
		return nil
	})
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		var names []string
		switch n := n.(type) {
		case *parser.AggregateExpr:
			names = n.Grouping
		case *parser.BinaryExpr:
			if n.VectorMatching != nil {
				names = append(slices.Clone(n.VectorMatching.MatchingLabels), n.VectorMatching.Include...)
			}
		}
		for _, l := range names {
			if !selected[l] {
				bad = append(bad, "no metric of the expression has the label "+l)
			}
		}
		return nil
	})
	if len(bad) > 0 {
		return fmt.Errorf("%s: %s", expr, strings.Join(bad, "; "))
	}
	return nil
}

// CheckRules loads the rules as Prometheus does and returns them with their faults.
func (k Kit) CheckRules() (rules []rulefmt.Rule, errs []error) {
	m, err := k.metrics()
	if err != nil {
		return nil, []error{err}
	}
	runbook, err := os.ReadFile(k.Runbook)
	if err != nil {
		return nil, []error{err}
	}
	groups, errs := rulefmt.ParseFile(k.Rules, false)
	if len(errs) > 0 {
		return nil, errs
	}
	alerts := make(map[string]bool)
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			rules = append(rules, r)
			name := r.Alert + r.Record
			if err := m.check(r.Expr); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", name, err))
			}
			if r.Alert == "" {
				continue
			}
			alerts[r.Alert] = true
			if !regexp.MustCompile(`(?m)^#+ ` + r.Alert + `\n\n[A-Z]`).Match(runbook) {
				errs = append(errs, fmt.Errorf("%s: no heading and paragraph of that name in %s", name, k.Runbook))
			}
			if r.Labels["severity"] == "" || r.Annotations["summary"] == "" || !strings.HasSuffix(r.Annotations["runbook_url"], "#"+strings.ToLower(r.Alert)) {
				errs = append(errs, fmt.Errorf("%s: severity, summary or runbook is missing", name))
			}
		}
	}
	for _, h := range regexp.MustCompile(`(?m)^#+ ([A-Z][A-Za-z]*[a-z][A-Z][A-Za-z]*)$`).FindAllSubmatch(runbook, -1) {
		if !alerts[string(h[1])] {
			errs = append(errs, fmt.Errorf("%s: a heading for %s, which is no alert", k.Runbook, h[1]))
		}
	}
	return rules, errs
}

// dashboard is the part of a Grafana dashboard that is checked.
type dashboard struct {
	Title, UID string
	Panels     []panel
	Templating struct{ List []variable }
}

type variable struct {
	Name, Type string
	Query      any
}

// checkVariable checks the query of a variable, in which values replace those before it.
func (m Metrics) checkVariable(v variable, values []string) error {
	if v.Type != "query" {
		return nil
	}
	text, _ := v.Query.(string)
	if q, ok := v.Query.(map[string]any); ok {
		text, _ = q["query"].(string)
	}
	q := regexp.MustCompile(`^label_values\((.*), *(\w+)\)$`).FindStringSubmatch(text)
	if q == nil {
		return fmt.Errorf("%q is no label_values(metric, label)", text)
	}
	return m.check(fmt.Sprintf("sum by (%s) (%s)", q[2], strings.NewReplacer(values...).Replace(q[1])))
}

type panel struct {
	ID         int
	Title      string
	Type       string
	GridPos    struct{ X, Y, W, H int }
	Datasource struct{ Type, UID string }
	Panels     []panel
	Targets    []struct{ Expr, LegendFormat, RefID string }
}

// withoutPanel returns a fault for each metric that no panel shows.
func (m Metrics) withoutPanel(d dashboard) (errs []error) {
	shown := ""
	for _, p := range d.Panels {
		for _, t := range p.Targets {
			shown += t.Expr + "\n"
		}
	}
	for name := range m {
		base := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_sum"), "_count"), "_bucket")
		if !regexp.MustCompile(`\b` + base + `(_bucket|_sum|_count)?\b`).MatchString(shown) {
			errs = append(errs, fmt.Errorf("dashboard %s: no panel shows %s", d.Title, name))
		}
	}
	return errs
}

// CheckDashboard returns the faults of the dashboard. A fault is an expression that does not parse or names unknown
// metrics, a panel without a title or a query, two panels in one place, a data source other than the variable, or in a
// Whole one a metric without a panel.
func (k Kit) CheckDashboard() (errs []error) {
	m, err := k.metrics()
	if err != nil {
		return []error{err}
	}
	text, err := os.ReadFile(k.Dashboard)
	if err != nil {
		return []error{err}
	}
	var d dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		return []error{err}
	}
	fail := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf(k.Dashboard+": "+format, args...))
	}
	if d.Title == "" || d.UID == "" || len(d.Panels) == 0 {
		fail("title, uid or panels are missing")
	}
	values := []string{"$__rate_interval", "5m", "$__range", "1h", "$__interval", "1m"} // the longer names first
	for _, v := range d.Templating.List {
		values = append(values, "$"+v.Name, "x")
		if err := m.checkVariable(v, values); err != nil {
			fail("variable %s: %w", v.Name, err)
		}
	}
	ids, places := make(map[int]bool), make(map[[2]int]string)
	var check func(p panel)
	check = func(p panel) {
		for _, inner := range p.Panels {
			check(inner)
		}
		if ids[p.ID] || p.Title == "" {
			fail("panel %d %q: the id is taken or the title is missing", p.ID, p.Title)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := places[[2]int{x, y}]; other != "" || x > 23 {
					fail("panel %q overlaps %q or the edge", p.Title, other)
					return
				}
				places[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" || p.Type == "text" {
			return
		}
		if p.Datasource.UID != "${datasource}" || p.Datasource.Type != "prometheus" {
			fail("panel %q: the data source is not the variable", p.Title)
		}
		if len(p.Targets) == 0 {
			fail("panel %q has no query", p.Title)
		}
		for _, t := range p.Targets {
			if err := m.check(strings.NewReplacer(values...).Replace(t.Expr)); err != nil {
				fail("panel %q: %w", p.Title, err)
			}
		}
	}
	for _, p := range d.Panels {
		check(p)
	}
	if k.Whole {
		errs = append(errs, m.withoutPanel(d)...)
	}
	return errs
}
