// Bolt treats ipset/boltstore as the world does: it kills processes in the middle of their work, fills the disk, and damages
// files; and then looks whether anything is missing, held twice, or held without an owner.
//
//	GOWORK=off go run ./bolt -kills 1000
//
// It prints what it did and saw. Its exit status is 1 if something was wrong.
package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"
)

func main() {
	if childMain() {
		return
	}
	kills := flag.Int("kills", 1000, "how many processes are killed")
	seed := flag.Uint64("seed", 1, "of the moments at which they are")
	flag.Parse()
	if err := run(*kills, *seed); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run does everything in its long form.
func run(kills int, seed uint64) error {
	dir, err := os.MkdirTemp("", "torture")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	began := time.Now()
	s, err := newStorm(filepath.Join(dir, "store.db"), rand.New(rand.NewPCG(seed, 0)))
	if err != nil {
		return err
	}
	for i := range kills {
		if err := s.round(i); err != nil {
			return fmt.Errorf("kill %d of seed %d: %w", i, seed, err)
		}
		if (i+1)%100 == 0 {
			fmt.Printf("%d kills in %v: %v\n", i+1, time.Since(began).Round(time.Second), s)
		}
	}
	fmt.Printf("%d kills in %v: %v\n", kills, time.Since(began).Round(time.Second), s)
	fmt.Printf("tried: %d kills\n", kills)
	for _, disk := range []string{"limit", "tmpfs"} {
		out, err := fullDisk(disk, filepath.Join(dir, disk))
		if err != nil {
			return fmt.Errorf("full disk, %s: %w", disk, err)
		}
		fmt.Printf("full disk, %s: %s", disk, out)
	}
	return nil
}
