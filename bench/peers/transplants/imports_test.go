//go:build transplant

package transplants

// What only their test files import, so that go.mod has it.
import (
	_ "github.com/stretchr/testify/require"
	_ "k8s.io/component-base/metrics/testutil"
)
