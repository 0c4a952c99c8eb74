package etcdstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// The defaults of an etcd server for one request: --max-txn-ops and --max-request-bytes.
const (
	defaultMaxOps   = 128
	defaultMaxBytes = 3 << 19
)

// maxPrefix bounds the prefix, which every key of every request repeats.
const maxPrefix = 256

// Under the prefix there are the format record, the records of the store, and lanes.
const (
	formatName = "format"
	spaceName  = "data/" // and the lanes of the commits in pastName
)

// Options are the options of [Open]; the zero value is useful.
type Options struct {
	// Cluster is the ID of the cluster that the store must be in; 0 is any. `etcdctl endpoint status -w json` shows it.
	Cluster uint64
	// NoCreate refuses a prefix that holds no store. Without it, a mistyped prefix is an empty store.
	NoCreate bool
	// Adopt takes over a store that was made in another cluster: after `etcdutl snapshot restore`, or a mirror. The old cluster must not
	// assign addresses any more. Every Store that was opened on this cluster before fails with [ipalloc.ErrReplaced].
	Adopt bool
	// MaxOps and MaxBytes are the --max-txn-ops and --max-request-bytes of the servers, where these are not the
	// default (128 and 1.5 MiB).
	MaxOps, MaxBytes int
	// OldServers accepts servers of releases that can lose events of a watch, or that do not say which release they are. Without it
	// Open refuses them. Set it in a program that neither watches nor follows: commits and reads do not depend on events.
	OldServers bool
}

// Store is a store.Store in etcd. [Open] makes one. Safe for concurrent use, by any number of processes.
//
// It holds nothing that must be closed; the client is the caller's, and must outlive it.
type Store struct {
	kv       pb.KVClient
	watches  pb.WatchClient
	format   string // the key of the format record
	space    string // what the keys of all records begin with
	end      string // the first key after them
	past     string // what the keys of all lanes begin with
	cluster  uint64
	born     uint64 // the revision at which the store was made
	mark     uint64 // the revision of the format record
	high     atomic.Uint64
	view     atomic.Uint64 // what is above viewBits in the revisions of callers
	maxOps   int
	maxBytes int
	limits   store.Limits

	mu    sync.Mutex
	head  point   // the newest commit of which a record was seen
	lanes []point // that no commit uses now
}

// Open returns the store under a prefix, which must end in "/", and creates an empty one if the prefix has no keys. It costs two round
// trips, one more if it makes the store, and one less with OldServers. The client's KV and Watcher fields are not used, only its
// connection.
//
// Errors, nothing written: [ipalloc.ErrMismatch] if the prefix holds keys but no store, or is inside another store's prefix.
// [ipalloc.ErrMismatch] also if the cluster differs from the expected one or from the format record, or if the server can lose events
// and OldServers is not set. [ipalloc.ErrVersion] if another release created the store. [ipalloc.ErrNotFound] if there is no store and
// NoCreate is set. [ipalloc.ErrInvalid] for an impossible prefix or limit.
func Open(ctx context.Context, client *clientv3.Client, prefix string, o Options) (*Store, error) {
	if client == nil {
		return nil, invalid("client", "is nil")
	}
	if len(prefix) < 2 || len(prefix) > maxPrefix || !strings.HasSuffix(prefix, "/") {
		return nil, invalid("prefix", fmt.Sprintf("%q must have 2 to %d bytes and end in /", prefix, maxPrefix))
	}
	s := &Store{
		kv: pb.NewKVClient(client.ActiveConnection()), watches: pb.NewWatchClient(client.ActiveConnection()),
		format: prefix + formatName, space: prefix + spaceName, end: clientv3.GetPrefixRangeEnd(prefix + spaceName),
		past: prefix + pastName, maxOps: o.MaxOps, maxBytes: o.MaxBytes,
	}
	if s.maxOps == 0 {
		s.maxOps = defaultMaxOps
	}
	if s.maxBytes == 0 {
		s.maxBytes = defaultMaxBytes
	}
	s.setLimits()
	if least := 2 + standingOps; s.maxOps < least {
		return nil, invalid("Options.MaxOps", fmt.Sprintf("%d operations per request, at least %d", s.maxOps, least))
	}
	if s.limits.Bytes < minBytes {
		return nil, invalid("Options.MaxBytes", fmt.Sprintf("%d bytes per request of %d operations leave %d to a commit, at least %d", s.maxBytes, s.maxOps, max(0, s.limits.Bytes), minBytes))
	}
	if !o.OldServers {
		if err := s.complete(ctx, pb.NewMaintenanceClient(client.ActiveConnection())); err != nil {
			return nil, err
		}
	}
	if err := s.open(ctx, prefix, o); err != nil {
		return nil, err
	}
	return s, nil
}

// complete asks the member that answers for its release, and returns an error if that can lose events of a watch.
func (s *Store) complete(ctx context.Context, member pb.MaintenanceClient) error {
	var status *pb.StatusResponse
	err := s.read(ctx, "open", func(ctx context.Context) (err error) {
		status, err = member.Status(ctx, &pb.StatusRequest{})
		return err
	})
	if err != nil || keepsEvents(status.Version) {
		return err
	}
	return mismatch("open", "the server is etcd %q; releases before 3.4.36 and 3.5.18 can lose events of a watch; see Options.OldServers", status.Version)
}

// keepsEvents reports whether servers of a release deliver every event: etcd-io/etcd issues 15220, 17529 and 19179 are fixed there.
func keepsEvents(release string) bool {
	var major, minor, patch int
	if n, _ := fmt.Sscanf(release, "%d.%d.%d", &major, &minor, &patch); n < 3 {
		return false
	}
	at := [...]int{major, minor, patch}
	since := [...]int{3, 6, 0}
	if major == 3 && minor == 4 {
		since = [...]int{3, 4, 36}
	} else if major == 3 && minor == 5 {
		since = [...]int{3, 5, 18}
	}
	return slices.Compare(at[:], since[:]) >= 0
}

// invalid returns the error of an argument.
func invalid(field, reason string) error {
	return &ipalloc.Error{Package: "etcdstore", Op: "open", Field: field, Reason: reason, Err: ipalloc.ErrInvalid}
}

// minBytes is what a commit must be able to hold: the longest keys that there are, and attributes of one address.
const minBytes = 1 << 17

// standingOps is how many operations of a request are not the commit's: the format record and two lanes.
const standingOps = 3

// opBytes is how much a request holds for an operation beside its key and value: the comparison, the operation and the
// question for the revision, each with a key that begins with the prefix, and the name of a lane.
func (s *Store) opBytes() int { return 3 * (len(s.space) + 40) }

// setLimits derives the limits of a commit from those of a request: the key of an operation is in it up to three times.
func (s *Store) setLimits() {
	size := (s.maxBytes - 1024 - (s.maxOps+standingOps)*s.opBytes()) / 3
	s.limits = store.Limits{Ops: s.maxOps - standingOps, Value: size, Bytes: size}
}

// Limits implements [store.Store]: with the servers' defaults 125 records and about 500 KB.
func (s *Store) Limits() store.Limits { return s.limits }

// Cluster returns the ID of the cluster that the store is in.
func (s *Store) Cluster() uint64 { return s.cluster }

// seen verifies the header of an answer: it comes from the cluster that the store was opened in, and from no earlier state of it
// than since, which is the highest revision seen before the question was asked.
func (s *Store) seen(h *pb.ResponseHeader, since uint64) error {
	if h.GetClusterId() != s.cluster {
		return fmt.Errorf("%w: cluster %d answers, the store is in %d", ipalloc.ErrMismatch, h.GetClusterId(), s.cluster)
	}
	rev := uint64(h.GetRevision())
	if rev < since {
		return fmt.Errorf("%w: the cluster is at revision %d after %d", ipalloc.ErrReplaced, rev, since)
	}
	for have := s.high.Load(); rev > have && !s.high.CompareAndSwap(have, rev); have = s.high.Load() {
	}
	return nil
}
