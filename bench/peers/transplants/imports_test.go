//go:build transplant

package transplants

// What only their test files import, so that go.mod has it.
import (
	_ "github.com/google/go-cmp/cmp"
	_ "github.com/metal-stack/go-ipam"
	_ "github.com/mikioh/ipaddr"
	_ "github.com/prometheus/client_golang/prometheus/testutil"
	_ "github.com/stretchr/testify/require"
	_ "golang.org/x/sync/errgroup"
	_ "k8s.io/component-base/metrics/testutil"
	_ "k8s.io/utils/ptr"
	_ "pgregory.net/rapid"
)
