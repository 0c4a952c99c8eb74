// Package types is whereabouts' types, as far as the adapter needs them; the suite lays them in.
package types
