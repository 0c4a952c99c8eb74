package ipset

import (
	"time"
)

// NewCollector returns a collector that waits for grace; 0 or less confirms only what is [Gone].
func (e *Engine) NewCollector(grace time.Duration) *Collector { return e.release.NewCollector(grace) }
