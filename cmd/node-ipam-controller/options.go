package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"k8s.io/client-go/tools/leaderelection"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cidrset/nodeipam"
)

// options are the flags. Those that kube-controller-manager has too mean the same
// there.
type options struct {
	config     string
	kubeconfig string
	master     string
	qps        float64
	burst      int

	allocate      bool
	allocatorType string
	clusterCIDR   string
	maskSize      int
	maskSizeIPv4  int
	maskSizeIPv6  int
	serviceCIDRs  string
	families      string
	syncPeriod    time.Duration

	dryRun  bool
	explain string
	version bool
	workers int
	address string

	verbosity     int
	logFormat     string
	successEvents bool

	leaderElect    bool
	leaseDuration  time.Duration
	renewDeadline  time.Duration
	retryPeriod    time.Duration
	leaseNamespace string
	leaseName      string
}

// flags returns the flags that set o.
func (o *options) flags(out io.Writer) *flag.FlagSet {
	f := flag.NewFlagSet("node-ipam-controller", flag.ContinueOnError)
	f.SetOutput(out)
	f.StringVar(&o.config, "config", "", "YAML `file` that maps names of flags to values; flags of the command line win")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "`file` that says how to reach the API server (default: the service account of the pod)")
	f.StringVar(&o.master, "master", "", "`URL` of the API server, instead of the one in the kubeconfig")
	f.Float64Var(&o.qps, "kube-api-qps", 50, "requests per second to the API server")
	f.IntVar(&o.burst, "kube-api-burst", 100, "requests to the API server in one burst, beyond -kube-api-qps")
	f.BoolVar(&o.allocate, "allocate-node-cidrs", false, "assign CIDRs to nodes; required, because two controllers side by side may assign one CIDR twice")
	f.StringVar(&o.allocatorType, "cidr-allocator-type", rangeAllocator, "`type`: RangeAllocator takes CIDRs from -cluster-cidr; MultiCIDRRangeAllocator takes them from the ClusterCIDR that the labels of a node choose")
	f.StringVar(&o.clusterCIDR, "cluster-cidr", "", "comma-separated `CIDRs` to assign from, with the families in the order of podCIDRs; with MultiCIDRRangeAllocator, the families that every ClusterCIDR needs and the CIDRs that must contain its IPv4 CIDR")
	f.IntVar(&o.maskSize, "node-cidr-mask-size", 0, "prefix `length` of a node's CIDR, with one family (default 24 for IPv4, 64 for IPv6)")
	f.IntVar(&o.maskSizeIPv4, "node-cidr-mask-size-ipv4", 0, "prefix `length` of a node's IPv4 CIDR (default 24)")
	f.IntVar(&o.maskSizeIPv6, "node-cidr-mask-size-ipv6", 0, "prefix `length` of a node's IPv6 CIDR (default 64)")
	f.StringVar(&o.serviceCIDRs, "service-cluster-ip-range", "", "comma-separated `CIDRs` of services; no node gets a CIDR in one of them")
	f.StringVar(&o.families, "families", "", "with MultiCIDRRangeAllocator, the families that every node needs: `IPv4, IPv6` or one of them (default: those of -cluster-cidr, or those of the ClusterCIDR)")
	f.DurationVar(&o.syncPeriod, "cluster-cidrs-sync-period", 10*time.Second, "pause between two looks at the counts that the statuses of ClusterCIDRs report")
	f.BoolVar(&o.dryRun, "dry-run", false, "print what each node has or would get and what is wrong, write nothing, and exit")
	f.StringVar(&o.explain, "explain", "", "with MultiCIDRRangeAllocator, print why a `node` has or would get its CIDRs, write nothing, and exit")
	f.BoolVar(&o.version, "version", false, "print the version and exit")
	f.IntVar(&o.verbosity, "v", 0, "`level` of logging; 4 and more adds details for developers")
	f.StringVar(&o.logFormat, "log-format", "text", "`format` of the log: text or json")
	f.BoolVar(&o.successEvents, "success-events", false, "also write an event when a node gets its CIDRs")
	f.IntVar(&o.workers, "concurrent-node-syncs", 30, "nodes that are worked on at the same time")
	f.StringVar(&o.address, "http-address", "127.0.0.1:10270", "`address` that serves /healthz, /readyz and /metrics; empty for none")
	f.BoolVar(&o.leaderElect, "leader-elect", true, "work only while holding a lease; required with more than one replica")
	f.DurationVar(&o.leaseDuration, "leader-elect-lease-duration", 15*time.Second, "how long the lease lasts after its last renewal")
	f.DurationVar(&o.renewDeadline, "leader-elect-renew-deadline", 10*time.Second, "how long the leader tries to renew before it stops")
	f.DurationVar(&o.retryPeriod, "leader-elect-retry-period", 2*time.Second, "pause between attempts to acquire or renew the lease")
	f.StringVar(&o.leaseNamespace, "leader-elect-resource-namespace", "kube-system", "namespace of the lease")
	f.StringVar(&o.leaseName, "leader-elect-resource-name", "node-ipam-controller", "name of the lease")
	return f
}

func parseOptions(args []string, out io.Writer) (*options, error) {
	o := &options{}
	f := o.flags(out)
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if o.config != "" {
		if err := readConfig(f, o.config); err != nil {
			return nil, err
		}
	}
	return o, o.check(f)
}

// The types of allocators.
const (
	rangeAllocator          = "RangeAllocator"
	multiCIDRRangeAllocator = "MultiCIDRRangeAllocator"
)

func (o *options) byLabels() bool { return o.allocatorType == multiCIDRRangeAllocator }

func (o *options) check(f *flag.FlagSet) error {
	switch {
	case f.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", f.Arg(0))
	case o.version:
		return nil
	case o.logFormat != "text" && o.logFormat != "json":
		return fmt.Errorf("-log-format %q: want text or json", o.logFormat)
	case o.explain != "" && !o.byLabels():
		return errors.New("-explain is for MultiCIDRRangeAllocator")
	case !o.allocate && !o.dryRun && o.explain == "":
		return errors.New("nothing to do without -allocate-node-cidrs, -dry-run or -explain")
	case o.allocatorType != rangeAllocator && !o.byLabels():
		return fmt.Errorf("-cidr-allocator-type %q: want %s or %s; a cloud provider's controller does the others", o.allocatorType, rangeAllocator, multiCIDRRangeAllocator)
	case o.byLabels() && (o.maskSize != 0 || o.maskSizeIPv4 != 0 || o.maskSizeIPv6 != 0):
		return errors.New("-node-cidr-mask-size, -node-cidr-mask-size-ipv4 and -ipv6 are for RangeAllocator; ClusterCIDRs have sizes of their own")
	case !o.byLabels() && o.clusterCIDR == "":
		return errors.New("RangeAllocator needs -cluster-cidr")
	case !o.byLabels() && o.families != "":
		return errors.New("-families is for MultiCIDRRangeAllocator")
	case o.syncPeriod <= 0:
		return errors.New("-cluster-cidrs-sync-period: want more than 0")
	case o.workers < 1:
		return errors.New("-concurrent-node-syncs: want 1 or more")
	case o.qps <= 0 || o.burst < 1:
		return errors.New("-kube-api-qps and -kube-api-burst: want more than 0")
	}
	return o.checkServing()
}

// checkServing refuses an address that cannot be one, a kubeconfig that is not there, and times
// of the lease that the elector would refuse.
func (o *options) checkServing() error {
	if o.address != "" {
		if _, err := net.ResolveTCPAddr("tcp", o.address); err != nil {
			return fmt.Errorf("-http-address: %w", err)
		}
	}
	if o.kubeconfig != "" {
		if _, err := os.Stat(o.kubeconfig); err != nil {
			return fmt.Errorf("-kubeconfig: %w", err)
		}
	}
	switch jittered := time.Duration(leaderelection.JitterFactor * float64(o.retryPeriod)); {
	case !o.leaderElect:
	case o.retryPeriod <= 0:
		return errors.New("-leader-elect-retry-period: want more than 0")
	case o.renewDeadline <= jittered:
		return fmt.Errorf("-leader-elect-renew-deadline: want more than %v, which is %v times -leader-elect-retry-period", jittered, leaderelection.JitterFactor)
	case o.leaseDuration <= o.renewDeadline:
		return fmt.Errorf("-leader-elect-lease-duration: want more than -leader-elect-renew-deadline, %v", o.renewDeadline)
	}
	return nil
}

// prefixes reads CIDRs with commas between. What people write in flags is masked.
func prefixes(flagName, text string) (ps []netip.Prefix, err error) {
	for _, part := range strings.Split(text, ",") {
		if part = strings.TrimSpace(part); part == "" && text == "" {
			continue
		}
		p, err := parseCIDR(part)
		if err != nil {
			return nil, fmt.Errorf("-%s: %w", flagName, err)
		}
		ps = append(ps, p)
	}
	return ps, nil
}

// parseCIDR reads a CIDR as Kubernetes does: host bits are masked, and leading zeros of
// an IPv4 number do not make it octal.
func parseCIDR(text string) (netip.Prefix, error) {
	p := nodeipam.ParseNode("", text).Prefixes[0]
	if !p.IsValid() {
		return p, fmt.Errorf("%q is no CIDR", text)
	}
	return p, nil
}

// rangeConfig returns what the range allocator works with: a slot for each family
// in the order in which -cluster-cidr begins with them, all CIDRs of the family in it.
func (o *options) rangeConfig(reserved []netip.Prefix) (c nodeipam.Config, err error) {
	pools, err := prefixes("cluster-cidr", o.clusterCIDR)
	if err != nil {
		return c, err
	}
	c.Reserved = reserved
	slots := map[bool]int{}
	for _, p := range pools {
		v4 := p.Addr().Is4()
		i, ok := slots[v4]
		if !ok {
			i = len(c.Slots)
			slots[v4] = i
			c.Slots = append(c.Slots, nodeipam.Slot{Bits: 64})
			if v4 {
				c.Slots[i].Bits = 24
			}
		}
		c.Slots[i].Pools = append(c.Slots[i].Pools, p)
	}
	return c, o.masks(&c, slots)
}

// flagOf adds to an error of the allocator the flag that set the field.
func (o *options) flagOf(c nodeipam.Config, err error) error {
	var of *ipalloc.Error
	if !errors.As(err, &of) {
		return err
	}
	name := "cluster-cidr"
	for i, s := range c.Slots {
		switch {
		case of.Field != fmt.Sprintf("Slots[%d].Bits", i):
		case o.maskSize != 0:
			name = "node-cidr-mask-size"
		case s.Pools[0].Addr().Is4():
			name = "node-cidr-mask-size-ipv4"
		default:
			name = "node-cidr-mask-size-ipv6"
		}
	}
	return fmt.Errorf("-%s: %w", name, err)
}

// masks sets the lengths of nodes' CIDRs.
func (o *options) masks(c *nodeipam.Config, slots map[bool]int) error {
	if o.maskSize != 0 {
		switch {
		case len(c.Slots) > 1:
			return errors.New("-node-cidr-mask-size is for one family; with two, use -node-cidr-mask-size-ipv4 and -ipv6")
		case o.maskSizeIPv4 != 0 || o.maskSizeIPv6 != 0:
			return errors.New("-node-cidr-mask-size goes without -node-cidr-mask-size-ipv4 and -ipv6")
		}
		c.Slots[0].Bits = o.maskSize
	}
	for _, m := range []struct {
		name string
		v4   bool
		size int
	}{{"ipv4", true, o.maskSizeIPv4}, {"ipv6", false, o.maskSizeIPv6}} {
		i, ok := slots[m.v4]
		switch {
		case m.size != 0 && !ok:
			return fmt.Errorf("-node-cidr-mask-size-%s without a CIDR of that family", m.name)
		case m.size != 0:
			c.Slots[i].Bits = m.size
		}
	}
	return nil
}
