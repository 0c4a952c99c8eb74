package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// book is a run of the proofs, and what it came to.
type book struct {
	c        *config
	repo     *repo
	proofs   []*proof
	promises []*promise
	jobs     []*job
	of       map[*proof][]*job // by part
	packages map[string]*job   // jobs of tests that take what they take, by package and tags
	began    time.Time
	took     time.Duration
	cache    string // of go

	mu       sync.Mutex
	builds   map[string]func() error
	rng      *rand.Rand
	running  map[*job]time.Time // when each is to end
	deadline time.Time
}

// newBook makes the jobs of the proofs and the promises.
func newBook(c *config, r *repo, proofs []*proof, promises []*promise) *book {
	b := &book{c: c, repo: r, proofs: proofs, promises: promises, of: map[*proof][]*job{}, packages: map[string]*job{},
		builds: map[string]func() error{}, rng: rand.New(rand.NewPCG(c.seed, 0)), running: map[*job]time.Time{}}
	for _, p := range promises {
		for _, t := range p.tests {
			b.include(part{dir: t.dir, tests: []string{t.name}})
		}
	}
	for _, p := range proofs {
		for _, part := range p.parts {
			j := (*job)(nil)
			if part.kind == once {
				j = b.include(part)
			} else {
				j = &job{part: part, module: r.module(part.dir)}
				if part.from <= c.length {
					b.jobs = append(b.jobs, j)
				}
			}
			b.of[p] = append(b.of[p], j)
		}
	}
	return b
}

// include adds tests to the job of their package.
func (b *book) include(p part) *job {
	key := p.dir + " " + p.tags
	j := b.packages[key]
	if j == nil {
		j = &job{part: part{dir: p.dir, tags: p.tags}, module: b.repo.module(p.dir)}
		b.packages[key] = j
		b.jobs = append(b.jobs, j)
	}
	j.all, j.full = j.all || len(p.tests) == 0, j.full || p.full
	for _, name := range p.tests {
		if !slices.Contains(j.tests, name) {
			j.tests = append(j.tests, name)
		}
	}
	return j
}

// run builds and runs all jobs.
func (b *book) run(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "prove-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if b.repo.top, err = filepath.Abs(b.repo.top); err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, "go", "env", "GOCACHE").Output()
	if err != nil {
		return err
	}
	b.cache = strings.TrimSpace(string(out))
	fmt.Printf("seed %d: go run ./prove -seed %d\n", b.c.seed, b.c.seed)
	began := time.Now()
	jobs := make(chan *job)
	b.each(func() {
		for j := range jobs {
			if err := b.build(ctx, j, dir); err != nil {
				j.result.failed = append(j.result.failed, failure{what: j.name() + ": " + err.Error(), repeat: "go vet ./" + j.dir})
			}
		}
	}, func() {
		for _, j := range b.jobs {
			jobs <- j
		}
		close(jobs)
	})
	fmt.Printf("built in %v\n", time.Since(began).Round(time.Second))
	b.began = time.Now()
	b.deadline = b.began.Add(b.c.length)
	waiting := slices.Clone(b.jobs)
	slices.SortStableFunc(waiting, func(x, y *job) int { return min(int(x.kind), 1) - min(int(y.kind), 1) }) // those that take what they take first
	b.each(func() {
		for ctx.Err() == nil {
			j, share := b.next(&waiting)
			if j == nil {
				return
			}
			b.runJob(ctx, j, share)
			b.done(j)
		}
	}, func() {})
	b.took = time.Since(b.began)
	return ctx.Err()
}

// each runs work in as many goroutines as there are streams, and feed beside them.
func (b *book) each(work, feed func()) {
	var wg sync.WaitGroup
	for range b.c.streams {
		wg.Add(1)
		go func() {
			defer wg.Done()
			work()
		}()
	}
	feed()
	wg.Wait()
}

// next takes the next job from those that wait, with its share of the time that is left.
func (b *book) next(waiting *[]*job) (*job, time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(*waiting) > 0 && len((*waiting)[0].result.failed) > 0 { // which could not be built
		*waiting = (*waiting)[1:]
	}
	if len(*waiting) == 0 {
		return nil, 0
	}
	now, j := time.Now(), (*waiting)[0]
	left := time.Duration(b.c.streams) * b.deadline.Sub(now)
	for _, end := range b.running {
		left -= max(0, end.Sub(now))
	}
	weights := 0
	for _, w := range *waiting {
		if w.kind == rounds || w.kind == fuzzing || w.kind == program {
			weights += max(1, w.weight)
		}
	}
	*waiting = (*waiting)[1:]
	share := time.Duration(0)
	if weights > 0 {
		share = left * time.Duration(max(1, j.weight)) / time.Duration(weights)
	}
	share = max(j.least, min(share, b.deadline.Sub(now)))
	if j.kind == once || j.kind == target {
		share = 0
	}
	b.running[j] = now.Add(share)
	return j, share
}

// done prints what a job came to.
func (b *book) done(j *job) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.running, j)
	fmt.Printf("%-70s %6.1f s  %s\n", j.name(), j.result.took.Seconds(), summary(j.result))
	for _, f := range j.result.failed {
		fmt.Printf("FOUND: %s\n    to repeat: %s\n", f.what, f.repeat)
	}
}

// seedOf draws a seed; it leaves room for many rounds.
func (b *book) seedOf() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rng.Uint64() >> 16
}

// verdict says whether something was found.
func (b *book) verdict() error {
	n, tests, skipped := 0, 0, 0
	for _, j := range b.jobs {
		n += len(j.result.failed)
		for _, o := range j.result.tests {
			tests++
			if o.status == "skipped" {
				skipped++
			}
		}
	}
	fmt.Printf("%d proofs, %d promises: %d jobs with %d tests in %v, %d tests skipped, %d jobs found something\n",
		len(b.proofs), len(b.promises), len(b.jobs), tests, b.took.Round(time.Second), skipped, n)
	if n > 0 {
		return errFound
	}
	return nil
}
