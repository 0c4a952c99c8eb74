// Package rates has the benchmark of stores whose table is in ipset/store.
package rates
