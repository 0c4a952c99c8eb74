package promtest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"slices"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/template"
	"go.yaml.in/yaml/v3"
)

// unitTests is a file of unit tests as promtool reads it.
type unitTests struct {
	Evaluation model.Duration `yaml:"evaluation_interval"`
	Tests      []struct {
		Name     string         `yaml:"name"`
		Interval model.Duration `yaml:"interval"`
		Series   []struct {
			Series string `yaml:"series"`
			Values string `yaml:"values"`
		} `yaml:"input_series"`
		Alerts []struct {
			At     model.Duration `yaml:"eval_time"`
			Name   string         `yaml:"alertname"`
			Expect []struct {
				Labels      map[string]string `yaml:"exp_labels"`
				Annotations map[string]string `yaml:"exp_annotations"`
			} `yaml:"exp_alerts"`
		} `yaml:"alert_rule_test"`
	} `yaml:"tests"`
}

// CheckAlerts runs the unit tests of the rules. Like promtool test rules, it compares the alerts that fire at each time, with
// their labels and annotations, with the expected alerts. Every alert must be expected to fire in one test and not to fire in
// another.
func (k Kit) CheckAlerts(ctx context.Context, rules []rulefmt.Rule) (errs []error) {
	text, err := os.ReadFile(k.Tests)
	if err != nil {
		return []error{err}
	}
	var u unitTests
	if err := yaml.Unmarshal(text, &u); err != nil {
		return []error{err}
	}
	byName := make(map[string]rulefmt.Rule)
	for _, r := range rules {
		byName[r.Alert] = r
	}
	fired, silent := make(map[string]bool), make(map[string]bool)
	for _, t := range u.Tests {
		var db series
		for _, in := range t.Series {
			errs = append(errs, db.add(in.Series, in.Values, time.Duration(t.Interval)))
		}
		for _, a := range t.Alerts {
			r, ok := byName[a.Name]
			if !ok {
				errs = append(errs, fmt.Errorf("%s: no alert %s", t.Name, a.Name))
				continue
			}
			got, err := firing(ctx, &db, r, time.Duration(u.Evaluation), time.Duration(a.At))
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %s: %w", t.Name, a.Name, err))
				continue
			}
			var expect []string
			for _, e := range a.Expect {
				expect = append(expect, labels.FromMap(e.Labels).String()+" "+labels.FromMap(e.Annotations).String())
			}
			slices.Sort(expect)
			if !slices.Equal(got, expect) {
				errs = append(errs, fmt.Errorf("%s: %s at %v: firing %v, expected %v", t.Name, a.Name, a.At, got, expect))
			}
			fired[a.Name] = fired[a.Name] || len(expect) > 0
			silent[a.Name] = silent[a.Name] || len(expect) == 0
		}
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		if !fired[name] || !silent[name] {
			errs = append(errs, fmt.Errorf("%s: no test in which it fires, or none in which it does not", name))
		}
	}
	return []error{errors.Join(errs...)}
}

// engine evaluates expressions as a server does with its default settings.
var engine = promql.NewEngine(promql.EngineOpts{Logger: slog.New(slog.DiscardHandler), MaxSamples: 1e6, Timeout: time.Minute, LookbackDelta: 5 * time.Minute})

// firing returns the labels and annotations of the alerts of a rule that fire at a moment: those whose expression has held at each
// evaluation since the time that the rule asks for.
func firing(ctx context.Context, db *series, r rulefmt.Rule, every, at time.Duration) ([]string, error) {
	since, says := make(map[string]time.Duration), make(map[string]string)
	for now := time.Duration(0); now <= at; now += every {
		q, err := engine.NewInstantQuery(ctx, db, nil, r.Expr, time.Unix(0, 0).Add(now))
		if err != nil {
			return nil, err
		}
		v, err := q.Exec(ctx).Vector()
		if err != nil {
			return nil, err
		}
		held := make(map[string]time.Duration)
		for _, s := range v {
			b := labels.NewBuilder(s.Metric).Del(labels.MetricName)
			for name, value := range r.Labels {
				b.Set(name, value)
			}
			key := b.Labels().String()
			held[key] = now
			if says[key], err = annotated(ctx, r, s); err != nil {
				return nil, err
			}
			if first, ok := since[key]; ok {
				held[key] = first
			}
		}
		since = held
		q.Close()
	}
	var names []string
	for key, first := range since {
		if at-first >= time.Duration(r.For) {
			names = append(names, key+" "+says[key])
		}
	}
	slices.Sort(names)
	return names, nil
}

// annotated returns the annotations of an alert as Prometheus writes them.
func annotated(ctx context.Context, r rulefmt.Rule, s promql.Sample) (string, error) {
	all := make(map[string]string)
	data := template.AlertTemplateData(s.Metric.Map(), nil, "", s)
	for name, text := range r.Annotations {
		var err error
		all[name], err = template.NewTemplateExpander(ctx, "{{$labels := .Labels}}{{$value := .Value}}"+text, r.Alert, data, 0, nil, &url.URL{}, nil).Expand()
		if err != nil {
			return "", err
		}
	}
	return labels.FromMap(all).String(), nil
}

// series is a storage of a few series, and the set of those that a query selects, which Next goes through.
type series struct {
	storage.SeriesSet
	all []storage.Series
	n   int
}

// add adds a series in the notation of unit tests.
func (s *series) add(name, values string, interval time.Duration) error {
	ls, vs, err := parser.ParseSeriesDesc(name + " " + values)
	if err != nil {
		return fmt.Errorf("%s %s: %w", name, values, err)
	}
	of := promql.Series{Metric: ls}
	for i, v := range vs {
		if !v.Omitted {
			of.Floats = append(of.Floats, promql.FPoint{T: int64(i) * interval.Milliseconds(), F: v.Value})
		}
	}
	s.all = append(s.all, promql.NewStorageSeries(of))
	return nil
}

// Querier implements [storage.Queryable].
func (s *series) Querier(_, _ int64) (storage.Querier, error) {
	return &storage.MockQuerier{SelectMockFunction: func(_ bool, _ *storage.SelectHints, ms ...*labels.Matcher) storage.SeriesSet {
		found := &series{SeriesSet: storage.EmptySeriesSet()}
		for _, one := range s.all {
			if !slices.ContainsFunc(ms, func(m *labels.Matcher) bool { return !m.Matches(one.Labels().Get(m.Name)) }) {
				found.all = append(found.all, one)
			}
		}
		return found
	}}, nil
}

func (s *series) Next() bool         { s.n++; return s.n <= len(s.all) }
func (s *series) At() storage.Series { return s.all[s.n-1] }
