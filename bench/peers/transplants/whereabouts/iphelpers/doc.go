// Package iphelpers is whereabouts' arithmetic of addresses; the suite lays it in.
package iphelpers
