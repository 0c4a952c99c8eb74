package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/ipalloc/ipalloc/examples/embed/internal/crash"
	"github.com/ipalloc/ipalloc/servicealloc"
)

// Nodes, pods and services keep what they have over a restart.
func Example() {
	main()
	// Output:
	// day 1
	// node-a [10.244.147.0/24 fd00:244:0:6c93::/64] [10.244.147.2 fd00:244:0:6c93::2]
	// node-b [10.244.223.0/24 fd00:244:0:a5df::/64] [10.244.223.2 fd00:244:0:a5df::2]
	// web [10.96.1.1] 30086
	// day 2
	// node-a [10.244.147.0/24 fd00:244:0:6c93::/64] [10.244.147.2 fd00:244:0:6c93::2]
	// node-b [10.244.223.0/24 fd00:244:0:a5df::/64] [10.244.223.2 fd00:244:0:a5df::2]
	// web [10.96.1.1] 30086
	// freed 2 of pods that are gone
	// pods4 used 0 cooling 2 blocks 2
	// pods6 used 0 cooling 2 blocks 2
}

func TestMain(m *testing.M) { crash.Main(m, storm) }

// storm starts and stops pods, and exposes and hides services.
func storm(ctx context.Context, file string, random *rand.Rand, do crash.Do) error {
	c, err := open(ctx, file)
	for err == nil {
		i, ends := random.IntN(30), random.IntN(3) == 0
		pod, service := fmt.Sprint("pod-", i), fmt.Sprint("service-", i)
		if random.IntN(3) > 0 {
			err = do(pod, func() (holds []string, err error) {
				if ends {
					return nil, c.stop(ctx, pod)
				}
				ips, err := c.start(ctx, fmt.Sprint("node-", i%3), pod)
				for _, ip := range ips {
					holds = append(holds, ip.String())
				}
				return holds, err
			})
			continue
		}
		err = do(service, func() ([]string, error) {
			if ends {
				return nil, c.hide(ctx, service)
			}
			g, err := c.expose(ctx, service)
			return words(g), err
		})
	}
	return err
}

func words(g servicealloc.Grant) (holds []string) {
	for _, ip := range g.Addrs {
		holds = append(holds, ip.String())
	}
	for _, p := range g.Ports {
		holds = append(holds, fmt.Sprint("port-", p.Number))
	}
	return holds
}

// What pods and services were told they hold, they hold alone after the program was killed: both addresses or none, and an address
// with its port.
func TestKilled(t *testing.T) {
	whole := func(_ string, holds []string) bool { return len(holds) == 0 || len(holds) == 2 }
	crash.Test(t, whole, func(t *testing.T, file string) map[string][]string {
		c, err := open(t.Context(), file)
		if err != nil {
			t.Fatal(err)
		}
		defer c.db.Close()
		have := crash.Held(t, c.pods)
		c.services.View(func(s *servicealloc.Registry) {
			for g := range s.All() {
				have[g.Owner] = words(g)
			}
			if err := s.Check(); err != nil {
				t.Error(err)
			}
		})
		return have
	})
}
