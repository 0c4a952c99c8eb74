// Package ipam puts ipset.Engine in the place of Calico's IPAM client.
package ipam
