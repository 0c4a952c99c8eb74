package controller

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cidrset/nodeipam"
	"github.com/ipalloc/ipalloc/internal/test/refusal"
)

// noNodes is a source that does not start, and a writer.
type noNodes struct {
	Source
	Writer
	err error
}

func (n noNodes) Start(context.Context, func(string)) error { return n.err }

// Every call refuses what it must in the form that package ipalloc promises.
func TestRefusals(t *testing.T) {
	allocator, err := nodeipam.New(nodeipam.Config{ByLabels: true})
	if err != nil {
		t.Fatal(err)
	}
	right := Config{Allocator: allocator, Source: noNodes{err: errors.New("a\nb")}, Writer: noNodes{}}
	var rows []refusal.Row
	for field, spoil := range map[string]func(*Config){
		"Allocator":   func(c *Config) { c.Allocator = nil },
		"Source":      func(c *Config) { c.Source = nil },
		"Writer":      func(c *Config) { c.Writer = nil },
		"Workers":     func(c *Config) { c.Workers = -1 },
		"Attempts":    func(c *Config) { c.Attempts = -1 },
		"Base":        func(c *Config) { c.Base = -1 },
		"Max":         func(c *Config) { c.Base, c.Max = time.Minute, time.Second },
		"RequestLife": func(c *Config) { c.RequestLife = -1 },
	} {
		c := right
		spoil(&c)
		_, err := New(c)
		rows = append(rows, refusal.Row{Call: "New", What: field, Op: "new", Is: ipalloc.ErrInvalid, Field: field, Err: err})
	}
	c, err := New(right)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Run(t.Context()); !errors.Is(err, right.Source.(noNodes).err) {
		t.Errorf("the error of the source is lost: %v", err)
	}
	rows = append(rows, refusal.Row{Call: "Controller.Run", What: "again", Op: "run", Is: ipalloc.ErrClosed, Err: c.Run(t.Context())})
	refusal.Check(t, "controller", rows)
}
