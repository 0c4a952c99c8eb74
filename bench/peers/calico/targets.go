package main

import (
	"github.com/ipalloc/ipalloc/bench/internal/frame"
)

var targets = []frame.Target{
	{Text: "engine on a store in memory, /26 half full: Calico / ours", Got: frame.RatioOf("engine/32", theirs, ours), Limit: 50, Least: true},
	{Text: "first address of a new host, 10 blocks", Got: frame.ValueOf("first/10", ours), Limit: 20000, Unit: " ns"},
	{Text: "first address of a new host, 1,000 blocks", Got: frame.ValueOf("first/1000", ours), Limit: 20000, Unit: " ns"},
	{Text: "first address of a new host, 100,000 blocks", Got: frame.ValueOf("first/100000", ours), Limit: 20000, Unit: " ns"},
	{Text: "first address of a new host: 100,000 blocks / 10", Got: frame.Over("first/100000", "first/10", ours), Limit: 2},
	{Text: "full pool: 65,536 blocks / 16", Got: frame.Over("full/65536", "full/16", ours), Limit: 2},
	{Text: "borrow: 65,536 blocks / 16", Got: frame.Over("borrow/65536", "borrow/16", ours), Limit: 3},
	{Text: "one etcd, 1 caller: Calico / ours", Got: frame.RatioOf("etcd/1", theirs, ours), Limit: 2.5, Least: true},
	{Text: "one etcd, 32 callers of one host: Calico / ours", Got: frame.RatioOf("etcd/32", theirs, ours), Limit: 8, Least: true},
	{Text: "256 callers of one host: errors", Got: frame.ValueOf("crowd/errors", ours), Limit: 0},
	{Text: "256 callers of one host: blocks beyond those needed", Got: frame.ValueOf("crowd/extra", ours), Limit: 0},
	{Text: "10,000,000 addresses: live heap as commits leave it", Got: frame.ValueOf("memory/built", ours), Limit: 0.9e9, Unit: " B"},
	{Text: "10,000,000 addresses: live heap, loaded", Got: frame.ValueOf("memory/heap", ours), Limit: 0.9e9, Unit: " B"},
	{Text: "10,000,000 addresses: load from a snapshot", Got: frame.ValueOf("memory/load", ours), Limit: 3e9, Unit: " ns"},
}
