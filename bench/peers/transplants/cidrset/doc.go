// Package cidrset puts cidrset.Set in the place of Kubernetes' set of node CIDRs.
package cidrset
