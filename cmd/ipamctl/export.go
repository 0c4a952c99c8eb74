package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/alloc"
	"github.com/ipalloc/ipalloc/ipset/calico"
	"github.com/ipalloc/ipalloc/ipset/store"
)

func (a *app) exportCommand() *cobra.Command {
	var format, to, in string
	c := &cobra.Command{
		Use: "export", Args: cobra.NoArgs,
		Short: "Write what the store holds as JSON, or addresses in another program's form",
		Long: "export writes settings, pools, blocks, every holder of every address, the cooling addresses, and with the format json also the prefixes,\n" +
			"attachments and limits, and every other space, such as ranges of numbers, unless --space names one. Sequence numbers, request keys, what\n" +
			"sticky handles had last, the cursors of networks and records of other programs are left out: to keep everything, use store backup or\n" +
			"store copy. What another format has no place for is named and counted. host-local is a directory and needs --to.\n\n" + formatsHelp,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.Contains(exportFormats, format) {
				return fail(exitUsage, "--format %s: the formats are %s", format, strings.Join(exportFormats, ", "))
			}
			if to != "" && format != "host-local" && exists(to) {
				return fail(exitConflict, "%s exists", to)
			}
			if format == "host-local" && to == "" {
				return fail(exitUsage, "host-local is a directory: name one with --to")
			}
			within, err := flagPrefix(in)
			switch {
			case err != nil:
				return err
			case in != "" && format == "calico":
				return fail(exitUsage, "--in: the format calico is of whole pools")
			}
			return a.readStore(cmd.Context(), func(ctx context.Context, e *ipset.Engine, db *source) error {
				defer a.progress("exporting")()
				return errors.Join(a.export(ctx, e, db, format, to, within), a.noteOthers(ctx, e, db, format))
			})
		},
	}
	c.Flags().StringVar(&format, "format", "json", "the `FORMAT`: "+strings.Join(exportFormats, ", "))
	c.Flags().StringVar(&in, "in", "", "export only what lies in this `PREFIX`")
	c.Flags().StringVar(&to, "to", "", "write to this `FILE`, or directory, instead of standard output")
	return c
}

// noteOthers names what a format other than json has no place for.
func (a *app) noteOthers(ctx context.Context, e *ipset.Engine, db store.Store, format string) error {
	if format == "json" {
		return nil
	}
	lost := map[string]int{}
	o, err := a.takeOthers(ctx, db)
	for r := range o.rows() {
		lost[r.Kind]++
	}
	err = errors.Join(err, a.eachOther(ctx, e, db, func(string, *ipset.Engine, store.Store) error {
		lost["other space"]++
		return nil
	}))
	if len(lost) > 0 {
		a.note("%s has no place for: %s", format, droppedText(lost))
	}
	return err
}

func (a *app) export(ctx context.Context, e *ipset.Engine, db store.Store, format, to string, in netip.Prefix) error {
	write := func(w io.Writer) error {
		switch format {
		case "json":
			err := a.writeJSON(ctx, e, db, w, in, "")
			if err == nil {
				_, err = fmt.Fprintln(w)
			}
			return err
		case "csv":
			return writeCSV(ctx, e, w, in)
		}
		return writeCalico(ctx, e, w)
	}
	switch {
	case format == "host-local":
		inv, err := take(ctx, e)
		if err != nil {
			return err
		}
		inv.keep(in)
		return a.writeHostLocal(to, inv)
	case to == "":
		out := bufio.NewWriter(a.stdout)
		return errors.Join(write(out), out.Flush())
	}
	return create(to, write)
}

// create writes a file that does not exist yet. One that cannot be written to its end does not stay.
func create(name string, write func(w io.Writer) error) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(f)
	if err = errors.Join(write(out), out.Flush(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(name))
	}
	return nil
}

// writeJSON writes an inventory, and each address as it is read.
func (a *app) writeJSON(ctx context.Context, e *ipset.Engine, db store.Store, w io.Writer, in netip.Prefix, indent string) error {
	inv, err := takeSettings(ctx, e)
	if err == nil {
		inv.others, err = a.takeOthers(ctx, db)
	}
	if err != nil {
		return err
	}
	inv.keep(in)
	head, err := json.MarshalIndent(inv, indent, "  ")
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%s", bytes.TrimSuffix(head, []byte("[]\n"+indent+"}")))
	before, end := "[\n    "+indent, "[]"
	err = eachEntry(ctx, e, in, func(entry addressEntry) error {
		text, err := json.MarshalIndent(entry, indent+"    ", "  ")
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(w, "%s%s", before, text)
		before, end = ",\n    "+indent, "\n  "+indent+"]"
		return err
	}, func(b blockEntry) { inv.Blocks = append(inv.Blocks, b) })
	if err != nil {
		return err
	}
	if len(inv.Blocks) > 0 {
		blocks, err := json.MarshalIndent(inv.Blocks, indent+"  ", "  ")
		if err != nil {
			return err
		}
		end += fmt.Sprintf(",\n%s  \"blocks\": %s", indent, blocks)
	}
	before = end + ",\n" + indent + "  \"spaces\": {"
	err = a.eachOther(ctx, e, db, func(name string, e *ipset.Engine, db store.Store) error {
		text, err := json.Marshal(name)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%s\n%s    %s: ", before, indent, text)
		before, end = ",", "\n"+indent+"  }"
		return a.writeJSON(ctx, e, db, w, in, indent+"    ")
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n%s}", end, indent)
	return err
}

// eachEntry calls f with each address in a prefix that is held or cools, and g with the blocks there.
func eachEntry(ctx context.Context, e *ipset.Engine, in netip.Prefix, f func(addressEntry) error, g func(blockEntry)) error {
	for b, err := range e.Operator().Blocks(ctx, netip.Prefix{}) {
		if err != nil {
			return err
		}
		if in.IsValid() && !in.Overlaps(b.Prefix()) {
			continue
		}
		g(blockEntry{b.Prefix().String(), b.Owner().String()})
		for entry := range entriesOf(b) {
			if outside(in, entry.Address) {
				continue
			}
			if err := f(entry); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeHostLocal writes a file for each address that is held into a directory that must be new or empty. A file has one holder, so
// an address with several is refused.
func (a *app) writeHostLocal(dir string, inv *inventory) error {
	held := map[string]bool{}
	for _, e := range inv.Addresses {
		if held[e.Address] && !e.Cooling {
			return fail(exitRefused, "%s has several holders, and a file of host-local has a place for one", e.Address)
		}
		held[e.Address] = !e.Cooling
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if len(files) > 0 {
		return fail(exitRefused, "%s is not empty", dir)
	}
	lost := map[string]int{}
	for _, e := range inv.Addresses {
		for what, has := range map[string]bool{"ends of leases": e.Until != "", "attributes": len(e.Attributes) > 0 && (len(e.Attributes) > 1 || e.Attributes[attrInterface] == ""),
			"alternate attributes": len(e.Alternate) > 0, "cooling addresses": e.Cooling} {
			if has {
				lost[what]++
			}
		}
		if e.Cooling {
			continue // nobody has it
		}
		iface := e.Attributes[attrInterface]
		if iface == "" {
			iface = "eth0"
		}
		if err := create(filepath.Join(dir, e.Address), func(w io.Writer) error {
			_, err := io.WriteString(w, e.Handle+"\r\n"+iface)
			return err
		}); err != nil {
			return err
		}
	}
	if len(lost) > 0 {
		a.note("host-local has no place for: %s", droppedText(lost))
	}
	return nil
}

// manifest is an object to write.
type manifest struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Metadata   map[string]any `json:"metadata"`
	Spec       any            `json:"spec"`
}

// objectName makes the name of an object of a prefix, as Calico does.
func objectName(p string) string { return strings.NewReplacer(".", "-", ":", "-", "/", "-").Replace(p) }

const calicoVersion = "crd.projectcalico.org/v1"

func writeCalico(ctx context.Context, e *ipset.Engine, w io.Writer) error {
	pools, err := e.Pools(ctx)
	if err != nil {
		return err
	}
	first := true
	write := func(kind, name string, spec any) error {
		text, err := yaml.Marshal(manifest{calicoVersion, kind, map[string]any{"name": name}, spec})
		if err != nil {
			return err
		}
		if first {
			fmt.Fprint(w, "apiVersion: v1\nkind: List\nitems:\n")
		}
		first = false
		_, err = fmt.Fprintf(w, "- %s\n", strings.ReplaceAll(strings.TrimSuffix(string(text), "\n"), "\n", "\n  "))
		return err
	}
	for _, p := range pools {
		for _, s := range []string{selectorText(p.Nodes), selectorText(p.Namespaces)} {
			if s != "" {
				return fail(exitRefused, "pool %s: Calico's selectors are a language of their own; %q has to be rewritten", p.Name, s)
			}
		}
		if len(p.Ranges) > 0 || p.Subnet {
			return fail(exitRefused, "pool %s: Calico's pools have no ranges and are no subnets: reserve what it must not assign", p.Name)
		}
		spec := calicoPool{CIDR: p.Prefix.String(), BlockSize: p.BlockBits, Disabled: p.Disabled || p.Closed, NodeSelector: "all()"}
		if p.Manual {
			spec.AssignmentMode = "Manual"
		}
		for _, use := range []struct {
			use  alloc.Use
			name string
		}{{alloc.Workload, "Workload"}, {alloc.Tunnel, "Tunnel"}, {alloc.LoadBalancer, "LoadBalancer"}} {
			if p.Uses&use.use != 0 {
				spec.AllowedUses = append(spec.AllowedUses, use.name)
			}
		}
		if err := write("IPPool", p.Name, spec); err != nil {
			return err
		}
	}
	reserved, err := reserved(ctx, e)
	if err != nil {
		return err
	}
	if cidrs := texts(reserved.Prefixes()); len(cidrs) > 0 {
		if err := write("IPReservation", "ipalloc", map[string]any{"reservedCIDRs": cidrs}); err != nil {
			return err
		}
	}
	for b, err := range e.Operator().Blocks(ctx, netip.Prefix{}) {
		if err != nil {
			return err
		}
		raw, err := calico.Export(b, 0)
		if err == nil {
			err = write("IPAMBlock", objectName(b.Prefix().String()), json.RawMessage(raw))
		}
		if err != nil {
			return err
		}
	}
	return nil
}
