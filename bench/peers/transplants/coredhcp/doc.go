// Package bitmap puts cidrset.Set in the place of coredhcp's bitmaps of prefixes and addresses.
package bitmap
