// Package types stands for what headscale stores: users, and nodes with their addresses.
package types
