package transplants

import (
	"flag"
	"testing"

	"github.com/ipalloc/ipalloc/bench/internal/transplant"
)

var write = flag.Bool("write", false, "write the results into README.md")

func TestTransplants(t *testing.T) { transplant.Run(t, suites, *write) }
