package main

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	goipam "github.com/metal-stack/go-ipam"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/ipalloc/ipalloc/bench/internal/callgrind"
	"github.com/ipalloc/ipalloc/bench/internal/frame"
	"github.com/ipalloc/ipalloc/bench/internal/report"
	"github.com/ipalloc/ipalloc/internal/test/servers"
	"github.com/ipalloc/ipalloc/ipset/etcdstore"
	"github.com/ipalloc/ipalloc/ipset/sqlstore"
	_ "github.com/ipalloc/ipalloc/ipset/sqlstore/pgx"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// fills are the states of a pool that a pair is measured in. Those on servers are marked.
var fills = []struct {
	id, pool, title string
	held            int
	servers         bool
}{
	{"24/0", "10.1.0.0/24", "a /24, empty", 0, false},
	{"24/127", "10.2.0.0/24", "a /24, 127 of 254 held", 127, true},
	{"24/250", "10.3.0.0/24", "a /24, 250 of 254 held", 250, false},
	{"16/1000", "10.4.0.0/16", "a /16, 1,000 held", 1000, true},
}

// makers make a contestant's engine with a pool.
type makers map[string]func(pool netip.Prefix) engine

var inMemory = makers{
	ours:   func(p netip.Prefix) engine { return newOurs(store.NewMemory(), p) },
	theirs: func(p netip.Prefix) engine { return newTheirs(goipam.NewMemory(bg), p) },
}

// filled returns an engine with a pool, and assigns so many of its addresses.
func (m makers) filled(who, pool string, held int) engine {
	e := m[who](netip.MustParsePrefix(pool))
	for range held {
		check(e.assign())
	}
	return e
}

// works returns the works of a section, whose ids begin with where.
func (m makers) works(where, section string, remote bool) []*frame.Work {
	ws := &frame.Works{Section: section}
	for _, f := range fills {
		if remote && !f.servers {
			continue
		}
		for _, who := range []string{ours, theirs} {
			ws.Add(where+f.id, f.title, who, func() *frame.Job {
				e := m.filled(who, f.pool, f.held)
				j := &frame.Job{Wall: remote, Run: func(n int) {
					for range n {
						check(e.pair())
					}
				}}
				if remote {
					j.Window = 250 * time.Millisecond // a pair takes milliseconds
				}
				return j
			})
		}
	}
	return ws.List
}

// backends are an etcd and a PostgreSQL that sync every write.
type backends struct {
	etcd     *servers.Etcd
	postgres *servers.Postgres
	client   *clientv3.Client
	db       *sql.DB
}

// startBackends starts the servers and connects to them.
func startBackends(ctx context.Context) (*backends, error) {
	etcd, err := servers.StartEtcd(ctx, servers.EtcdOptions{})
	if err != nil {
		return nil, err
	}
	postgres, err := servers.StartPostgres(ctx, servers.PostgresOptions{})
	if err != nil {
		etcd.Close()
		return nil, err
	}
	return connect(etcd, postgres), nil
}

func connect(etcd *servers.Etcd, postgres *servers.Postgres) *backends {
	return &backends{
		etcd: etcd, postgres: postgres,
		client: must(clientv3.New(clientv3.Config{Endpoints: etcd.Endpoints(), DialTimeout: 10 * time.Second, Logger: zap.NewNop()})),
		db:     must(sql.Open("pgx", postgres.DSN())),
	}
}

func (b *backends) close() {
	b.db.Close()
	b.client.Close()
	b.postgres.Close()
	b.etcd.Close()
}

// name is what a pool's own place in a server is called.
func name(p netip.Prefix) string {
	return strings.NewReplacer(".", "_", "/", "_").Replace("p" + p.String())
}

func (b *backends) onEtcd() makers {
	return makers{
		ours: func(p netip.Prefix) engine {
			return newOurs(must(etcdstore.Open(bg, b.client, "/ipalloc/"+name(p)+"/", etcdstore.Options{})), p)
		},
		theirs: func(p netip.Prefix) engine {
			host, port, err := net.SplitHostPort(b.etcd.Members()[0].ClientAddress())
			check(err)
			return newTheirs(must(goipam.NewEtcd(bg, host, port, nil, nil, false)), p)
		},
	}
}

func (b *backends) onPostgres() makers {
	return makers{
		ours: func(p netip.Prefix) engine {
			return newOurs(must(sqlstore.Open(bg, b.db, sqlstore.Options{Prefix: name(p) + "_"})), p)
		},
		theirs: func(p netip.Prefix) engine {
			socket := goipam.SSLModeDisable + goipam.SSLMode("&host="+b.postgres.Dir()) // a socket is no host of a URL
			return newTheirs(must(goipam.NewPostgresStorage("", "5432", "postgres", "", "postgres", socket)), p)
		},
	}
}

// all returns the works in memory, and on the servers if there are any.
func (b *backends) all() []*frame.Work {
	works := inMemory.works("memory/", "One address assigned and released, in memory", false)
	if b != nil {
		works = append(works, b.onEtcd().works("etcd/", "The same on one etcd", true)...)
		works = append(works, b.onPostgres().works("postgres/", "The same on one PostgreSQL", true)...)
	}
	return works
}

// pairEnv has the program make the pairs of one work in memory, and nothing else: contestant, number
// of the state, number of pairs.
const pairEnv = "GOIPAM_PAIR"

// counted does what pairEnv says, and reports whether it says anything.
func counted() bool {
	f := strings.Fields(os.Getenv(pairEnv))
	if len(f) != 3 {
		return false
	}
	state := fills[must(strconv.Atoi(f[1]))]
	e := inMemory.filled(f[0], state.pool, state.held)
	n := must(strconv.Atoi(f[2]))
	pairs := func(n int) {
		for range n {
			check(e.pair())
		}
	}
	pairs(n / 4) // fill caches
	callgrind.Begin()
	pairs(n)
	return true
}

// instructions counts the instructions of a pair in memory; none without valgrind.
func instructions(log io.Writer) (facts []frame.Fact, err error) {
	if _, err := exec.LookPath("valgrind"); err != nil {
		fmt.Fprintln(log, "instructions are not counted without valgrind")
		return nil, nil
	}
	dir, err := os.MkdirTemp("", "goipam-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	for i, f := range fills {
		fact := frame.Fact{Section: "Instructions of it in memory", ID: "instructions/" + f.id, Title: f.title, Values: map[string]float64{}, Format: report.Whole}
		for _, who := range []string{ours, theirs} {
			c, err := callgrind.Each(200, filepath.Join(dir, "out"), fmt.Sprintf("%s=%s %d 200", pairEnv, who, i))
			if err != nil {
				return nil, err
			}
			fact.Values[who] = c.Instructions
		}
		facts = append(facts, fact)
	}
	return facts, nil
}
