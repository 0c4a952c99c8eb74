package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/audit"
	"github.com/ipalloc/ipalloc/ipset/hostlocal"
	"github.com/ipalloc/ipalloc/ipset/kept"
	"github.com/ipalloc/ipalloc/ipset/limits"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// attachmentView is an attachment of package hostlocal, or a key with its user, in JSON.
type attachmentView struct {
	Network    string   `json:"network"`
	Attachment string   `json:"attachment,omitempty"`
	Scope      string   `json:"scope,omitempty"`
	Added      string   `json:"added,omitempty"`
	Key        string   `json:"key,omitempty"`
	Interface  string   `json:"interface,omitempty"` // of the users of a key
	Uses       uint64   `json:"uses,omitempty"`      // of a key, so far
	Addresses  []string `json:"addresses"`
}

// keyPrefix begins the container of a key.
const keyPrefix = "key/"

func viewAttachment(network string, h hostlocal.Holding) attachmentView {
	v := attachmentView{Network: network, Attachment: h.Attachment.String(), Scope: h.Scope, Added: timeText(h.Added), Addresses: texts(h.Addresses)}
	if h.Sequence > 0 {
		v.Key, v.Interface, v.Uses, v.Attachment = strings.TrimPrefix(h.Attachment.Container, keyPrefix), h.Attachment.Interface, h.Sequence, ""
		if h.User != (hostlocal.Attachment{}) {
			v.Attachment = h.User.String()
		}
	}
	return v
}

// holding returns the holding that a view says.
func (v attachmentView) holding() (h hostlocal.Holding, err error) {
	h.Sequence = v.Uses
	if h.Attachment = (hostlocal.Attachment{Container: keyPrefix + v.Key, Interface: v.Interface}); v.Key == "" {
		at := strings.LastIndexByte(v.Attachment, '/')
		if at < 0 {
			return h, fail(exitUsage, "attachment %q: want CONTAINER/INTERFACE", v.Attachment)
		}
		h.Attachment = hostlocal.Attachment{Container: v.Attachment[:at], Interface: v.Attachment[at+1:]}
	}
	for _, text := range v.Addresses {
		ip, err := parseAddr(text)
		if err != nil {
			return h, err
		}
		h.Addresses = append(h.Addresses, ip)
	}
	h.Added, err = parseTime("added", v.Added)
	return h, err
}

func (a *app) attachmentCommand() *cobra.Command {
	c := &cobra.Command{Use: "attachment", Short: "Show and release what package hostlocal keeps, such as the attachments of cni-ipam-etcd"}
	all := listing{columns: []string{"NETWORK", "ATTACHMENT", "KEY", "SCOPE", "ADDED", "ADDRESSES"}, empty: "no attachment holds an address"}
	show := a.recordList("show ADDRESS|CONTAINER|KEY", "Show who holds an address, or what a container or a key holds", all, cobra.ExactArgs(1),
		func(ctx context.Context, db store.Store, l *listing, args []string) error {
			return l.addAttachments(ctx, db, nil, func(v attachmentView) bool {
				container, _, _ := strings.Cut(v.Attachment, "/")
				return slices.Contains(append(v.Addresses, container, v.Attachment, v.Key), args[0])
			})
		})
	show.Aliases = nil
	remove := a.recordEnd("remove NETWORK", "Remove the records of a network in which nothing is held", "remove network", listing{}, 1,
		func(ctx context.Context, db store.Store, _ *listing, args []string) error {
			return eachNetwork(ctx, db, args, func(_ string, e *hostlocal.Engine) error { return e.Remove(ctx) })
		})
	remove.Aliases = []string{"rm"}
	c.AddCommand(a.recordList("list [NETWORK...]", "List the attachments of networks, all by default", all, nil,
		func(ctx context.Context, db store.Store, l *listing, args []string) error {
			return l.addAttachments(ctx, db, args, func(attachmentView) bool { return true })
		}), show, a.attachmentReleaseCommand(), remove)
	return c
}

// network returns the engine of a network, which may have keys.
func network(db store.Store, name, scope string) (*hostlocal.Engine, error) {
	return hostlocal.New(db, hostlocal.Config{Network: name, Scope: scope, Keys: true})
}

// eachNetwork calls f for each network in a store, or for those that are named, each of which must be there.
func eachNetwork(ctx context.Context, db store.Store, names []string, f func(name string, e *hostlocal.Engine) error) error {
	missing := slices.Clone(names)
	for name, err := range hostlocal.Networks(ctx, db) {
		if err != nil {
			return err
		}
		if len(names) > 0 && !slices.Contains(names, name) {
			continue
		}
		missing = slices.DeleteFunc(missing, func(n string) bool { return n == name })
		e, err := network(db, name, "")
		if err == nil {
			err = f(name, e)
		}
		if err != nil {
			return err
		}
	}
	if len(missing) > 0 {
		return fail(exitNotFound, "there is no network %q; attachment list lists them", missing[0])
	}
	return nil
}

// addAttachments adds the wanted attachments of some networks, of all if none is named.
func (l *listing) addAttachments(ctx context.Context, db store.Store, names []string, want func(attachmentView) bool) error {
	return eachNetwork(ctx, db, names, func(name string, e *hostlocal.Engine) error {
		state, err := e.Export(ctx)
		for _, h := range state.Holdings {
			if v := viewAttachment(name, h); want(v) {
				l.add(v.Attachment, v, v.Network, v.Attachment, v.Key, v.Scope, v.Added, strings.Join(v.Addresses, " "))
			}
		}
		return err
	})
}

func (a *app) attachmentReleaseCommand() *cobra.Command {
	var key string
	c := &cobra.Command{
		Use: "release NETWORK [CONTAINER/INTERFACE]", Args: cobra.RangeArgs(1, 2),
		Short: "Release what an attachment or a key holds",
		Long:  "release is for an attachment whose container is gone. A runtime releases those of its containers itself, by the plugin.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if (len(args) == 2) == (key != "") {
				return fail(exitUsage, "release needs an attachment or --key")
			}
			what := key + strings.Join(args[1:], "")
			if err := a.confirm(cmd.Context(), "release "+what, what); err != nil {
				return err
			}
			return a.changeRecords(cmd.Context(), writing, func(ctx context.Context, db store.Store) error {
				return a.endAttachment(ctx, db, args[0], what, key)
			})
		},
	}
	c.Flags().StringVar(&key, "key", "", "release what this `KEY` keeps")
	return a.destructiveFlags(c)
}

// endAttachment releases an attachment in its scope, or a key.
func (a *app) endAttachment(ctx context.Context, db store.Store, name, what, key string) error {
	l := &listing{columns: []string{"ATTACHMENT", "RELEASED"}, empty: "nothing was held"}
	add := func(addresses []string) {
		for _, at := range addresses {
			l.add(at, map[string]string{"attachment": what, "address": at}, what, at)
		}
	}
	err := eachNetwork(ctx, db, []string{name}, func(_ string, e *hostlocal.Engine) error {
		if key != "" {
			all, err := e.EndKey(ctx, key)
			for _, h := range all {
				add(texts(h.Addresses))
			}
			return err
		}
		state, err := e.Export(ctx)
		if err != nil {
			return err
		}
		for _, h := range state.Holdings {
			who := h.Attachment
			if h.User != (hostlocal.Attachment{}) {
				who = h.User
			}
			if who.String() != what {
				continue
			}
			in, err := network(db, name, h.Scope)
			if err != nil {
				return err
			}
			freed, err := in.Del(ctx, who)
			if add(texts(freed)); err != nil {
				return err
			}
		}
		return nil
	})
	return a.printThen(l, err)
}

// checkAttachments adds what is wrong with the networks of a space to its report.
func checkAttachments(ctx context.Context, db store.Store, r *spaceReport) error {
	return eachNetwork(ctx, db, nil, func(name string, e *hostlocal.Engine) error {
		state, err := e.Export(ctx)
		if r.attachments += len(state.Holdings); err == nil {
			err = e.Check(ctx)
		}
		if statusOf(err) == exitDamaged {
			r.Problems = append(r.Problems, audit.Problem{Kind: audit.Damaged, Key: name, Detail: err.Error()})
			err = nil
		}
		return err
	})
}

func (a *app) keptCommand() *cobra.Command {
	c := &cobra.Command{Use: "kept", Short: "Show and end what package kept keeps for handles"}
	keeper := func(db store.Store) (*kept.Keeper, error) {
		return kept.New(db, alloc.VirtualOwner("ipamctl"), a.numberOptions())
	}
	c.AddCommand(a.recordList("list", "List the addresses that are kept", listing{columns: []string{"ADDRESS", "KEPT FOR", "NOT BEFORE"}, empty: "no address is kept"}, cobra.NoArgs,
		func(ctx context.Context, db store.Store, l *listing, _ []string) error {
			k, err := keeper(db)
			if err != nil {
				return err
			}
			for is, err := range k.All(ctx) {
				if err != nil {
					return err
				}
				at, not := is.Address.String(), timeText(is.NotBefore)
				l.add(at, map[string]string{"address": at, "handle": is.Handle, "notBefore": not}, at, is.Handle, not)
			}
			return nil
		}), a.recordEnd("drop HANDLE", "Keep no address for a handle any more; what it holds stays held", "drop what is kept for",
		listing{columns: []string{"DROPPED"}, empty: "nothing was kept"}, 1, func(ctx context.Context, db store.Store, l *listing, args []string) error {
			k, err := keeper(db)
			if err != nil {
				return err
			}
			dropped, err := k.Drop(ctx, args[0])
			for _, at := range texts(dropped) {
				l.add(at, map[string]string{"address": at}, at)
			}
			return err
		}))
	return c
}

func (a *app) limitCommand() *cobra.Command {
	c := &cobra.Command{Use: "limit", Short: "Show and end the limits of package limits"}
	c.AddCommand(a.recordList("list", "List the limits, with what counts under each", listing{columns: []string{"LIMIT", "MOST", "USED"}, empty: "no limit is remembered"}, cobra.NoArgs,
		func(ctx context.Context, db store.Store, l *listing, _ []string) error {
			for is, err := range limits.New(db, a.numberOptions()).All(ctx) {
				if err != nil {
					return err
				}
				l.add(is.Name, limitView{is.Name, is.Most, &is.Used}, is.Name, fmt.Sprint(is.Most), fmt.Sprint(is.Used))
			}
			return nil
		}), a.recordEnd("forget NAME", "End a limit; what counts under it stays held", "forget the limit", listing{}, 1,
		func(ctx context.Context, db store.Store, _ *listing, args []string) error {
			return limits.New(db, a.numberOptions()).Forget(ctx, args[0])
		}))
	return c
}
