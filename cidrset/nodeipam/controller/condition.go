package controller

import (
	"errors"
	"fmt"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/cidrset/nodeipam"
)

// condition is the last report about a node. Equal conditions are reported once.
type condition struct {
	kind conditionKind
	text string
}

type conditionKind uint8

const (
	fine conditionKind = iota
	badRecord
	missingFamily // a bad record with no other fault
	full
	unmatched
	unwritten
	conditionKinds
)

// report sets the condition of a node, and reports it if it is new.
func (c *Controller) report(name string, now condition, err error) {
	var before condition
	c.locked(func() {
		before = c.conditions[name]
		if now.kind == fine {
			delete(c.conditions, name)
		} else {
			c.conditions[name] = now
		}
		c.counts[before.kind]--
		c.counts[now.kind]++
	})
	if before != now {
		c.cfg.Report(name, err)
	}
}

func (c *Controller) fine(name string) { c.report(name, condition{}, nil) }

// complain reports the problems of a node's record.
func (c *Controller) complain(name string, problems []*ipalloc.Error) {
	if len(problems) == 0 {
		c.fine(name)
		return
	}
	kind, all := missingFamily, make([]error, len(problems))
	for i, p := range problems {
		if all[i] = p; !errors.Is(p, ipalloc.ErrNotHeld) {
			kind = badRecord
		}
	}
	err := all[0]
	if len(all) > 1 {
		err = errors.Join(all...)
	}
	c.report(name, condition{kind, err.Error()}, err)
}

// unserved reports that the allocator refused a node. Which pool is full may differ at
// each attempt, so only the sentinel and the field tell conditions apart.
func (c *Controller) unserved(name string, err error) {
	now := condition{kind: full}
	var e *ipalloc.Error
	if errors.As(err, &e) {
		now.text = fmt.Sprint(e.Field, " ", e.Err)
	}
	if errors.Is(err, ipalloc.ErrNotFound) {
		now = condition{kind: unmatched}
	}
	c.report(name, now, err)
}

// unwritten reports that a write or read failed. Errors of a connection name ports and
// times, so their texts do not tell conditions apart; the texts of refusals do.
func (c *Controller) unwritten(name, op string, as nodeipam.Assignment, sentinel, cause error) {
	now := condition{unwritten, sentinel.Error()}
	wrapped := fmt.Errorf("%w: %w", sentinel, cause)
	if sentinel == ipalloc.ErrConflict {
		now.text, wrapped = cause.Error(), cause
	}
	e := &ipalloc.Error{Package: "controller", Op: op, Owner: name, Err: wrapped}
	if len(as.Prefixes) > 0 {
		e.Prefix = as.Prefixes[0]
	}
	c.report(name, now, e)
}

// unchosen reports that Choose failed. Only the text of a refusal by the allocator tells
// conditions apart.
func (c *Controller) unchosen(name string, err error) {
	var refusal *ipalloc.Error
	sentinel := ipalloc.ErrUnknownOutcome
	if errors.As(err, &refusal) {
		sentinel = ipalloc.ErrConflict
	}
	c.unwritten(name, "choose", nodeipam.Assignment{}, sentinel, err)
}

// retryAfter returns the delay that an error of the writer names. The delay is at least 1
// ns, because 0 means none.
func retryAfter(err error) (delay time.Duration, ok bool) {
	var e interface {
		error
		RetryAfter() time.Duration
	}
	if !errors.As(err, &e) {
		return 0, false
	}
	return max(e.RetryAfter(), 1), true
}
