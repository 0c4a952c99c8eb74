//go:build transplant

package transplants

// What only their test files import, so that go.mod has it.
import (
	_ "github.com/onsi/ginkgo/v2"
	_ "github.com/onsi/gomega"
	_ "github.com/stretchr/testify/require"
	_ "golang.org/x/sync/errgroup"
	_ "gotest.tools/v3/assert"
	_ "k8s.io/component-base/metrics/testutil"
	_ "pgregory.net/rapid"
)
