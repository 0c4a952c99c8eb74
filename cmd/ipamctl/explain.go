package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset"
)

// verdictView is what one pool would do for a host, in JSON.
type verdictView struct {
	Pool      string `json:"pool"`
	Gives     string `json:"gives,omitempty"`
	Reason    string `json:"reason,omitempty"`
	Selects   string `json:"selects"`
	State     string `json:"state"`
	Uses      string `json:"uses"`
	Blocks    int    `json:"blocksOfHost"`
	Limit     int    `json:"limit,omitempty"`
	Available count  `json:"available"`
	Cooling   count  `json:"cooling"`
	Reserved  count  `json:"reserved"`
}

func (a *app) explainCommand() *cobra.Command {
	var use string
	c := &cobra.Command{
		Use: "explain HOST|POOL|ADDRESS", Args: cobra.ExactArgs(1),
		Short: "Say which pools serve a host and why the others do not, or what stands in the way of an address",
		Long: "explain HOST asks the engine for one address from each pool, in a dry run that changes nothing, and prints its answer or its\n" +
			"reason with the numbers. explain POOL does so for every host that has a block of the pool. explain ADDRESS says what keeps an\n" +
			"address from being assigned, and what would free it. A host that is named like a pool is written host:NAME.",
		RunE: func(cmd *cobra.Command, args []string) error {
			wanted, err := parseUses([]string{use})
			if err != nil {
				return err
			}
			if err := a.loadLabels(cmd.Context()); err != nil {
				return err
			}
			return a.read(cmd.Context(), func(ctx context.Context, e *ipset.Engine) error {
				if ip, err := parseAddr(args[0]); err == nil {
					return a.explainAddress(ctx, e, ip)
				}
				return a.explain(ctx, e.DryRun(), args[0], wanted)
			})
		},
	}
	c.Flags().StringVar(&use, "for", "workload", "what the address would be for: a `USE`, workload, tunnel or loadbalancer")
	return a.labelsFlag(c)
}

// explain explains each pool for one host, or one pool for each of its hosts.
func (a *app) explain(ctx context.Context, e *ipset.Engine, name string, use ipset.Use) error {
	all, err := pools(ctx, e)
	if err != nil {
		return err
	}
	var hosts []ipset.Owner
	if at := slices.IndexFunc(all, func(p poolUse) bool { return p.Name == name }); at >= 0 {
		all = all[at : at+1]
		for _, b := range all[0].Utilization.Blocks {
			if b.Owner.Kind != ipset.Nobody && !slices.Contains(hosts, b.Owner) {
				hosts = append(hosts, b.Owner)
			}
		}
	} else {
		o, err := ownerOf(name)
		if err != nil {
			return err
		}
		hosts = []ipset.Owner{o}
	}
	cfg, err := e.Operator().Config(ctx)
	if err != nil {
		return err
	}
	l := &listing{columns: []string{"HOST", "POOL", "GIVES", "REASON", "SELECTS", "STATE", "USES", "BLOCKS", "LIMIT", "AVAILABLE", "COOLING", "RESERVED"},
		empty: "there is no pool, or no host has a block of it"}
	for _, o := range hosts {
		for i := range all {
			v, err := a.oneVerdict(ctx, e, &all[i], o, use, cfg)
			if err != nil {
				return err
			}
			limit := "-"
			if v.Limit > 0 {
				limit = fmt.Sprint(v.Limit)
			}
			l.add(v.Pool, v, o.String(), v.Pool, v.Gives, v.Reason, v.Selects, v.State, v.Uses, fmt.Sprint(v.Blocks), limit,
				v.Available.String(), v.Cooling.String(), v.Reserved.String())
		}
	}
	return a.print(l)
}

// oneVerdict asks the engine for an address of a pool, unless the pool does not serve such a call at all.
func (a *app) oneVerdict(ctx context.Context, e *ipset.Engine, p *poolUse, o ipset.Owner, use ipset.Use, cfg ipset.Config) (v verdictView, err error) {
	v = verdictView{Pool: p.Name, Selects: "yes", State: stateOf(p.Pool), Uses: strings.Join(usesOf(p.Uses), ","), Limit: p.MaxBlocksPerHost,
		Available: count{p.Utilization.Available}, Cooling: count{p.Utilization.Cooling}, Reserved: count{p.Utilization.Reserved}}
	if v.Limit == 0 || cfg.MaxBlocksPerHost > 0 && cfg.MaxBlocksPerHost < v.Limit {
		v.Limit = cfg.MaxBlocksPerHost
	}
	for _, b := range p.Utilization.Blocks {
		if b.Owner == o {
			v.Blocks++
		}
	}
	labels, known := map[string]string(nil), true
	if of := a.labelsOf(); of != nil {
		labels, known = of(o)
	} else if byLabels(p.Pool) {
		v.Selects = "unknown"
	}
	switch selects, err := p.Nodes.Matches(o.Name, labels); {
	case err != nil:
		return v, err
	case v.Selects == "unknown":
		v.Reason = "its selector is " + selectorText(p.Nodes) + ", and the labels of the host are not known: name them with --labels"
		return v, nil
	case !known:
		v.Selects, v.Reason = "no", "--labels has no such host"
	case !selects:
		v.Selects, v.Reason = "no", "its selector is "+selectorText(p.Nodes)
	case p.Disabled:
		v.Reason = "it is disabled"
	case p.Uses&use == 0:
		v.Reason = "it does not serve this use"
	case p.Manual:
		v.Reason = "only calls that name it"
	}
	if v.Reason != "" && !(p.Manual && v.Selects == "yes" && !p.Disabled && p.Uses&use != 0) {
		return v, nil
	}
	args := ipset.AssignArgs{Owner: o, Claim: ipset.Claim{Handle: "ipamctl explain"}, Use: use, Pools: []string{p.Name}, Partial: true}
	if p.Pool.Prefix.Addr().Is4() {
		args.Num4 = 1
	} else {
		args.Num6 = 1
	}
	got, err := e.DryRun().AutoAssign(ctx, args)
	for _, al := range slices.Concat(got.V4, got.V6) {
		v.Gives = al.Address.String()
	}
	for _, s := range got.Short {
		v.Reason = s.Reason.String()
		if s.Reason == ipset.ReasonLimitReached {
			v.Reason = fmt.Sprintf("%v: %d of %d blocks", s.Reason, v.Blocks, v.Limit)
		}
	}
	var fault *ipalloc.Error
	if errors.As(err, &fault) && v.Gives == "" && statusOf(err) != exitDamaged {
		v.Reason, err = err.Error(), nil
	}
	return v, err
}

// explainAddress says what an address is, why nobody gets it, and what would free it.
func (a *app) explainAddress(ctx context.Context, e *ipset.Engine, ip netip.Addr) error {
	all, err := e.Pools(ctx)
	if err != nil {
		return err
	}
	views, err := lookup(ctx, e, all, ip)
	if err != nil {
		return err
	}
	reserved, err := e.Operator().Reservations(ctx)
	if err != nil {
		return err
	}
	l := &listing{columns: []string{"ADDRESS", "POOL", "STATE", "WHY", "FREED BY"}, single: len(views) == 1}
	for _, v := range views {
		why, by := "", ""
		switch v.State {
		case stateHeld:
			why, by = fmt.Sprintf("%q on %s holds it", v.Handle, v.Host), fmt.Sprintf("release %s --if-handle %s", v.Address, v.Handle)
			if v.Until != "" {
				why += " until " + v.Until
			}
		case stateCooling, stateDeclined:
			why, by = fmt.Sprintf("%q had it, and it cools until %s", v.Handle, v.Until), "waiting; pool set "+v.Pool+" --cooldown for later ones"
		case stateReserved:
			why, by = "it is at an end of its block or subnet, or outside of the ranges of its pool", "pool set "+v.Pool+" --range or --subnet=false; assign ADDRESS takes it all the same"
			if reserved.Contains(ip) {
				why, by = "a reservation has it", "reserve remove "+v.Address
			}
		case stateFree:
			why = "it is free in a block of " + v.BlockOwner
			if v.BlockOwner == "" {
				why = "it is free in a block without owner"
			}
		default:
			why = "it is in no block yet"
		}
		l.add(v.Address, map[string]string{"address": v.Address, "pool": v.Pool, "state": v.State, "why": why, "freedBy": by}, v.Address, v.Pool, v.State, why, by)
	}
	return a.print(l)
}
