package main

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ipalloc/ipalloc/ipset"
)

// forecastView is when a pool will be full, in JSON.
type forecastView struct {
	Pool      string   `json:"pool"`
	Available count    `json:"available"`
	PerDay    *float64 `json:"perDay,omitempty"`
	Days      *float64 `json:"days,omitempty"`
	FullIn    string   `json:"fullIn"`
}

func (a *app) forecastCommand() *cobra.Command {
	var file string
	c := &cobra.Command{
		Use: "forecast [POOL...] --recording FILE", Args: cobra.ArbitraryArgs, ValidArgsFunction: a.completePools,
		Short: "Say in how many days each pool is full, at the rate of the last week",
		Long: "forecast divides what is available in a pool by how many more of its addresses are held than a week before, or than when the\n" +
			"recording began, which must be a day ago. It counts the changes in the file of record and its older ones. What comes in the\n" +
			"nights or at weekends is not told apart from the rest. Prometheus' alert IpallocPoolFillsThisMonth asks the same.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if file == "" {
				return fail(exitUsage, "forecast needs the --recording that record made")
			}
			return a.read(cmd.Context(), func(ctx context.Context, e *ipset.Engine) error { return a.forecast(ctx, e, file, args) })
		},
	}
	c.Flags().StringVar(&file, "recording", "", "the `FILE` of record")
	return c
}

const (
	rateOver  = 7 * 24 * time.Hour // whose changes make the rate
	leastOver = 24 * time.Hour     // with less, the hours of a day decide
)

// growth is what a recording says of the last week.
type growth struct {
	since time.Time          // the changes from then on are complete
	net   map[netip.Addr]int // by address: the holders it got, less those it lost
}

// readGrowth reads the changes of the week before now.
func readGrowth(file string, now time.Time) (*growth, error) {
	g := &growth{since: now}
	from := now.Add(-rateOver)
	err := readRecording(file, func(v changeView, at time.Time) {
		kind := strings.TrimPrefix(v.Change, "as found: ")
		if v.Change == missingChanges || g.net == nil {
			g.since, g.net = at, map[netip.Addr]int{}
		}
		ip, err := netip.ParseAddr(v.What)
		if at.Before(from) || err != nil {
			return
		}
		switch kind {
		case ipset.AddressAssigned.String():
			g.net[ip]++
		case ipset.AddressReleased.String(), ipset.AddressCooling.String():
			g.net[ip]--
		}
	})
	if g.since.Before(from) {
		g.since = from
	}
	return g, err
}

func (a *app) forecast(ctx context.Context, e *ipset.Engine, file string, names []string) error {
	all, err := pools(ctx, e)
	if err != nil {
		return err
	}
	g, err := readGrowth(file, a.now())
	if err != nil {
		return err
	}
	prefixes, more := make([]ipset.Pool, len(all)), map[string]int{}
	for i := range all {
		prefixes[i] = all[i].Pool
	}
	for ip, n := range g.net {
		more[poolAt(prefixes, ip)] += max(-1, min(n, 1)) // an address with several holders is one
	}
	if len(names) == 0 {
		for i := range all {
			names = append(names, all[i].Name)
		}
	}
	l := &listing{columns: []string{"POOL", "AVAILABLE", "A DAY", "FULL IN"}, empty: "there are no pools"}
	over := a.now().Sub(g.since)
	for _, name := range names {
		p, err := onePool(all, name)
		if err != nil {
			return err
		}
		v := forecastOf(p, more[name], over)
		rate := "-"
		if v.PerDay != nil {
			rate = fmt.Sprintf("%+.1f", *v.PerDay)
		}
		l.add(v.Pool, v, v.Pool, v.Available.String(), rate, v.FullIn)
	}
	return a.print(l)
}

// forecastOf says when a pool is full that has got more holders in a time.
func forecastOf(p *poolUse, more int, over time.Duration) forecastView {
	v := forecastView{Pool: p.Name, Available: count{p.Utilization.Available}, FullIn: "not enough recorded"}
	if over < leastOver {
		return v
	}
	rate := float64(more) / over.Hours() * 24
	v.PerDay = &rate
	left := p.Utilization.Available.Float64()
	days := left / rate
	switch {
	case left == 0:
		v.FullIn = "full"
	case more <= 0:
		v.FullIn = "not growing"
		return v
	case days > 3650:
		v.FullIn = "more than 10 years"
	case days < 1:
		v.FullIn = "less than a day"
	case days < 1.5:
		v.FullIn = "about a day"
	default:
		v.FullIn = fmt.Sprintf("about %.0f days", days)
	}
	if more > 0 {
		v.Days = &days
	}
	return v
}
