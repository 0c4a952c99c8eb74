package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
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
		Use: "explain HOST|POOL|ADDRESS", Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeHosts,
		Short: "Say which pools serve a host and why the others do not, or what stands in the way of an address",
		Long: "explain HOST asks the engine for one address from each pool, in a dry run that changes nothing, and prints its answer or its\n" +
			"reason with the numbers. explain POOL does so for every host that has a block of the pool. explain ADDRESS says what keeps an\n" +
			"address from being assigned, and what would free it. A host that is named like a pool is written host:NAME.",
		RunE: func(cmd *cobra.Command, args []string) error {
			wanted, err := parseUses([]string{use})
			if err != nil {
				return err
			}
			if err := a.loadLabels(cmd); err != nil {
				return err
			}
			return a.read(cmd.Context(), func(ctx context.Context, e *ipset.Engine) error {
				if ip, err := parseAddr(args[0]); err == nil {
					return a.explainAddress(ctx, e, ip)
				}
				return a.explain(ctx, e, args[0], wanted)
			})
		},
	}
	c.Flags().StringVar(&use, "for", "workload", "what the address would be for: a `USE`, workload, tunnel or loadbalancer")
	return a.namespaceFlag(a.labelsFlag(c))
}

// explain explains each pool for one host, or one pool for each of its hosts.
func (a *app) explain(ctx context.Context, e *ipset.Engine, name string, use alloc.Use) error {
	all, err := pools(ctx, e)
	if err != nil {
		return err
	}
	var hosts []alloc.Owner
	if at := slices.IndexFunc(all, func(p poolUse) bool { return p.Name == name }); at >= 0 {
		all = all[at : at+1]
		for _, b := range all[0].Utilization.Blocks {
			if b.Owner.Kind != alloc.Nobody && !slices.Contains(hosts, b.Owner) {
				hosts = append(hosts, b.Owner)
			}
		}
	} else {
		o, err := ownerOf(name)
		if err != nil {
			return err
		}
		hosts = []alloc.Owner{o}
	}
	cfg, err := e.Operator().Config(ctx)
	if err != nil {
		return err
	}
	l := &listing{columns: []string{"HOST", "POOL", "GIVES", "REASON", "SELECTS", "STATE", "USES", "BLOCKS", "LIMIT", "AVAILABLE", "COOLING", "RESERVED"},
		empty: "there is no pool, or no host has a block of it"}
	args := alloc.AssignArgs{Num4: 1, Num6: 1, Use: use, Handle: "ipamctl explain", Selectors: true, Namespace: a.labels.namespace}
	for _, p := range all {
		args.Pools = append(args.Pools, p.Name)
	}
	for _, o := range hosts {
		args.Owner = o
		known := true
		if of := a.labelsOf(); of != nil {
			_, known = of(o)
		}
		if !known {
			for _, p := range all {
				v := verdictView{Pool: p.Name, Selects: "no", Reason: "--labels has no such host", State: stateOf(p.Pool)}
				l.add(v.Pool, v, o.String(), v.Pool, "", v.Reason, v.Selects, v.State, "", "", "", "", "", "")
			}
			continue
		}
		found, err := e.Explain(ctx, args)
		if err != nil {
			return err
		}
		for _, x := range found {
			i := slices.IndexFunc(all, func(p poolUse) bool { return p.Name == x.Pool })
			if i < 0 {
				continue // not asked about
			}
			v, limit := a.poolVerdict(&all[i], o, x, cfg), "-"
			if v.Limit > 0 {
				limit = fmt.Sprint(v.Limit)
			}
			l.add(v.Pool, v, o.String(), v.Pool, v.Gives, v.Reason, v.Selects, v.State, v.Uses, fmt.Sprint(v.Blocks), limit,
				v.Available.String(), v.Cooling.String(), v.Reserved.String())
		}
	}
	return a.print(l)
}

// poolVerdict says in words what the engine says of a pool for an owner.
func (a *app) poolVerdict(p *poolUse, o alloc.Owner, x alloc.Explanation, cfg alloc.Config) verdictView {
	v := verdictView{Pool: p.Name, Selects: "yes", State: stateOf(p.Pool), Uses: strings.Join(usesOf(p.Uses), ","), Limit: p.MaxBlocksPerHost,
		Available: count{p.Utilization.Available}, Cooling: count{p.Utilization.Cooling}, Reserved: count{p.Utilization.Reserved}}
	if v.Limit == 0 || cfg.MaxBlocksPerHost > 0 && cfg.MaxBlocksPerHost < v.Limit {
		v.Limit = cfg.MaxBlocksPerHost
	}
	for _, b := range p.Utilization.Blocks {
		if b.Owner == o {
			v.Blocks++
		}
	}
	if len(x.Gives) > 0 {
		if v.Gives = x.Gives[0].String(); p.Manual {
			v.Reason = alloc.ReasonNotNamed.String()
		}
		return v
	}
	switch v.Reason = x.Reason.String(); x.Reason {
	case alloc.ReasonDisabled, alloc.ReasonOtherUse:
		v.Selects = "-" // not looked at
	case alloc.ReasonNotOfHost:
		v.Selects, v.Reason = "no", "its selector is "+selectorText(p.Nodes)
		if a.labelsOf() == nil && byLabels(p.Pool) {
			v.Selects, v.Reason = "unknown", v.Reason+", and the labels of the host are not known: name them with --labels"
		}
	case alloc.ReasonNotOfNamespace:
		v.Selects, v.Reason = "no", "its selector of namespaces is "+selectorText(p.Namespaces)
		if a.labels.namespace == nil {
			v.Selects, v.Reason = "unknown", v.Reason+", and the labels of the namespace are not known: name them with --namespace"
		}
	case alloc.ReasonCoolingLeft:
		v.Reason += " until " + timeText(x.Until)
	case alloc.ReasonLimitReached:
		v.Reason += fmt.Sprintf(": %d of %d blocks", x.Limit.Blocks, x.Limit.Max)
	}
	return v
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
			if k := slices.IndexFunc(reserved, func(r alloc.Reservation) bool { return r.Range.Contains(ip) }); k >= 0 {
				why, by = "a reservation has it"+reasonText(reserved[k]), "reserve remove "+v.Address
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
