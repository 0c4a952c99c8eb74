package ipalloc_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// ownContexts have each function that makes contexts which do not end with its caller's, how many, and why.
var ownContexts = map[string]string{
	"cmd/cni-ipam/cni-ipam-etcd/lock.go lock 1":           "a lock is given back when the call has no time left",
	"cmd/cni-ipam/internal/plugin/state.go open 1":        "a signal ends the process",
	"cmd/cni-ipam/internal/plugin/takeover.go look 3":     "a signal ends the process",
	"cmd/cni-ipam/internal/plugin/verbs.go emptyStatus 1": "a store in memory",
	"cmd/ipamctl/change.go changeOn 1":                    "what was confirmed is written",
	"cmd/ipamctl/main.go main 1":                          "the first context",
	"cmd/node-ipam-controller/main.go main 1":             "the first context",
	"cmd/node-ipam-controller/serve.go serve 1":           "the shutdown after the end, for a second",
	"cmd/node-ipam-controller/serve.go check 1":           "one check for all requests, for two seconds",
	"ipset/boltstore/journal/journal.go commit 1":         "a batch is of several callers",
	"ipset/boltstore/journal/log.go put 1":                "a batch is of several callers",
	"ipset/boltstore/journal/room.go freeRoom 1":          "a batch is of several callers",
	"ipset/boltstore/journal/room.go fold 1":              "a batch is of several callers",
	"ipset/boltstore/journal/room.go sweep 1":             "a batch is of several callers",
	"ipset/boltstore/salvage.go states 1":                 "reads a page",
	"ipset/boltstore/stats.go Stats 1":                    "reads a page",
	"ipset/etcdstore/commit.go writeOnce 1":               "the error is of a request that left no trace, whether or not the context has ended",
	"ipset/internal/check/check.go Check 1":               "records in memory",
	"ipset/internal/combine/combine.go Context 1":         "ends with the last of several callers",
	"ipset/internal/occ/runner.go serve 1":                "ends with the last of several callers",
	"ipset/kubestore/commit.go serve 1":                   "a batch is of several callers",
	"ipset/kubestore/commit.go conflict 1":                "a store in memory",
	"ipset/kubestore/past.go continues 2":                 "a store in memory",
	"ipset/kubestore/replica.go newReplica 1":             "ends with the replica",
	"ipset/kubestore/replica.go apply 1":                  "a store in memory",
	"ipset/kubestore/replica.go growth 1":                 "a store in memory",
	"ipset/kubestore/snapshot.go compact 1":               "a compaction is for all callers",
	"ipset/kubestore/store.go Open 1":                     "ends with the store",
	"ipset/kubestore/store.go rounds 1":                   "a read is for all callers",
	"ipset/kubestore/watch.go join 2":                     "ends with the last of several watches",
	"ipset/sqlstore/commit.go batch 2":                    "a batch is of several callers, and ends when they have left",
	"ipset/sqlstore/sqlite.go transact 1":                 "an interrupted statement ends the transaction of several callers",
	"ipset/sqlstore/sqlite.go within 1":                   "an interrupted statement ends the caller's transaction",
	"ipset/sqlstore/watch.go enter 1":                     "ends with the last of several watches",
	"ipset/store/remote/remote.go Open 1":                 "ends with Close",
	"ipset/store/remote/serve.go Serve 1":                 "the shutdown after the end",
	"metrics/others.go scrape 1":                          "a scrape has no context",
}

// A context that does not end with the caller's has a reason.
func TestOwnContexts(t *testing.T) {
	left := maps.Clone(ownContexts)
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		path = filepath.ToSlash(path)
		if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") ||
			regexp.MustCompile(`^(bench|examples|fuzz|internal)/|test/[^/]*$`).MatchString(path) {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			name := "var"
			if f, ok := decl.(*ast.FuncDecl); ok {
				name = f.Name.Name
			}
			uses := 0
			ast.Inspect(decl, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok && fmt.Sprint(s.X) == "context" && (s.Sel.Name == "Background" || s.Sel.Name == "TODO" || s.Sel.Name == "WithoutCancel") {
					uses++
				}
				return true
			})
			if key := fmt.Sprint(path, " ", name, " ", uses); uses > 0 && left[key] == "" {
				t.Errorf("no reason: %q", key)
			} else {
				delete(left, key)
			}
		}
		return nil
	})
	if err != nil || len(left) > 0 {
		t.Errorf("no such use: %q, %v", left, err)
	}
}
