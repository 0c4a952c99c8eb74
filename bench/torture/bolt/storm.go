package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/ipalloc/ipalloc/cidrset"
	"github.com/ipalloc/ipalloc/ipset"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
	"github.com/ipalloc/ipalloc/ipset/boltstore/journal"
	"github.com/ipalloc/ipalloc/ipset/prefixes"
)

// A storm kills processes that work on one file, and knows what each of them was told is done.
type storm struct {
	path string
	rnd  *rand.Rand
	held map[string]string // what was acknowledged, or found made of what was in doubt

	kills, acknowledged, doubts, made int
}

func newStorm(path string, rnd *rand.Rand) (*storm, error) {
	s, err := boltstore.Open(context.Background(), path, boltstore.Options{})
	if err != nil {
		return nil, err
	}
	e, err := ipset.New(s, ipset.Options{})
	if err == nil {
		err = pools(e)
	}
	var tree *prefixes.Allocator
	if err == nil {
		tree, err = prefixes.New(s, prefixes.Options{})
	}
	if err == nil {
		err = tree.AddPool(context.Background(), treePool)
	}
	if err != nil {
		return nil, err
	}
	return &storm{path: path, rnd: rnd, held: make(map[string]string)}, s.Close()
}

func (s *storm) String() string {
	return fmt.Sprintf("%d operations acknowledged and all there, %d cut short, of which something was held for %d; %d things held",
		s.acknowledged, s.doubts, s.made, len(s.held))
}

// round starts a process, kills it at some moment and compares the file with what it had been told.
func (s *storm) round(i int) error {
	sync := "sync"
	if i%2 == 1 {
		sync = "nosync"
	}
	lines, err := killed(fmt.Sprintf("work %s r%d %s", s.path, i, sync), 1+s.rnd.IntN(200), time.Duration(s.rnd.IntN(3000))*time.Microsecond)
	if err != nil {
		return err
	}
	s.kills++
	doubt, err := s.follow(lines)
	if err != nil {
		return err
	}
	return s.compare(doubt)
}

// killed starts this program as a child and kills it some time after it has written a number of lines; it returns all it wrote.
func killed(task string, after int, pause time.Duration) ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), childEnv+"="+task)
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	var lines []string
	for sc := bufio.NewScanner(out); sc.Scan(); {
		if lines = append(lines, sc.Text()); len(lines) == after {
			time.AfterFunc(pause, func() { _ = cmd.Process.Kill() })
		}
	}
	_ = cmd.Wait()
	if complaint.Len() > 0 {
		return nil, fmt.Errorf("%s: %s", task, complaint.String())
	}
	return lines, nil
}

// follow enters what was acknowledged, and returns the handles whose last operation was not.
func (s *storm) follow(lines []string) (doubt map[string]bool, err error) {
	doubt = make(map[string]bool)
	of := make(map[string][]string)
	for _, line := range lines {
		words := strings.Fields(line)
		handle := words[1]
		switch words[0] {
		case "assign", "release":
			doubt[handle] = true
			continue
		case "assigned":
			for _, a := range words[2:] {
				other := s.held[a]
				if other != "" && !doubt[other] { // who releases it may have been told so a moment later
					return nil, fmt.Errorf("%v was given to %s while %s had it", a, handle, other)
				}
				s.held[a] = handle
				of[handle] = append(of[handle], a)
			}
		case "released":
			for _, a := range of[handle] {
				if s.held[a] == handle {
					delete(s.held, a)
				}
			}
		}
		delete(doubt, handle)
		s.acknowledged++
	}
	s.doubts += len(doubt)
	return doubt, nil
}

// compare opens the file and looks for everything that was acknowledged, and for anything else but what is in doubt.
func (s *storm) compare(doubt map[string]bool) error {
	ctx := context.Background()
	st, err := boltstore.Open(ctx, s.path, boltstore.Options{NoCreate: true, Verify: boltstore.VerifyAlways})
	if err != nil {
		return err
	}
	defer st.Close()
	e, err := ipset.New(st, ipset.Options{})
	if err != nil {
		return err
	}
	rep, err := e.Operator().Check(ctx, nil)
	if err != nil || len(rep.Problems) > 0 {
		return fmt.Errorf("check: %v, %v", rep, err)
	}
	nodes, services, err := journals(st)
	if err != nil {
		return err
	}
	tree, err := prefixes.New(st, prefixes.Options{})
	if err != nil {
		return err
	}
	have, err := held(ctx, e, tree, nodes, services)
	if err != nil {
		return err
	}
	if err := s.match(have, doubt); err != nil {
		return err
	}
	s.held = have
	return s.thin(ctx, pods{e}, trees{tree}, nodes, grants{services})
}

// match compares what is held with what was told, and names what has no handle by it.
func (s *storm) match(have map[string]string, doubt map[string]bool) error {
	nameless := 0 // what a set may hold for those that were cut short
	for h := range doubt {
		if strings.HasPrefix(h, nodePrefix) {
			nameless++
		}
	}
	made := make(map[string]bool)
	for what, handle := range have {
		told := s.held[what]
		switch {
		case handle == "" && told != "":
			have[what] = told
		case handle == "":
			if nameless--; nameless < 0 {
				return fmt.Errorf("%s is held by nobody", what)
			}
			have[what] = nodePrefix + " unknown"
			s.made++
		case told == handle:
		case doubt[handle]:
			made[handle] = true
		default:
			return fmt.Errorf("%s is held by %s, which was not told or has released it; as far as is known %q holds it", what, handle, told)
		}
	}
	s.made += len(made)
	for what, h := range s.held {
		if have[what] != h && !doubt[h] {
			return fmt.Errorf("%s, given to %s, is lost: held by %q", what, h, have[what])
		}
	}
	return nil
}

// thin releases some of what dead processes hold, so that nothing fills.
func (s *storm) thin(ctx context.Context, pods pods, trees trees, nodes *journal.Journal[*cidrset.Set], services grants) error {
	released := make(map[string]bool)
	for what, h := range s.held {
		if s.rnd.IntN(3) != 0 || released[h] {
			continue
		}
		var err error
		switch {
		case strings.HasPrefix(h, nodePrefix):
			err = nodes.Do(ctx, func(set *cidrset.Set) error {
				_, err := set.Release(netip.MustParsePrefix(what))
				return err
			})
			delete(s.held, what)
		case strings.HasPrefix(h, treePrefix):
			released[h], err = true, trees.release(ctx, h)
		case strings.HasPrefix(h, "service"):
			released[h], err = true, services.release(ctx, h)
		default:
			released[h], err = true, pods.release(ctx, h)
		}
		if err != nil {
			return fmt.Errorf("release %s of %s: %w", what, h, err)
		}
	}
	for what, h := range s.held {
		if released[h] {
			delete(s.held, what)
		}
	}
	return nil
}
